"""Padding: which text is shorter and where, what a loss makes of it, and which leaves are told to show it."""

import copy
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import (
    BartConfig,
    BartModel,
    BertConfig,
    BertForQuestionAnswering,
    BertForTokenClassification,
    BertModel,
    GPT2Config,
    GPT2ForSequenceClassification,
    PretrainedConfig,
    PreTrainedModel,
)

from modelfarm_worker.inputs import make_inputs
from modelfarm_worker.leaves import flatten
from modelfarm_worker.padding import report
from modelfarm_worker.workloads import make_workload

SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
PAD, END = 5, 9


def bert(kind=BertModel, **changes):
    torch.manual_seed(0)
    return kind(BertConfig(**{**SIZES, "pad_token_id": PAD, "eos_token_id": END, **changes})).eval()


def inputs_of(model, workload, path="/nowhere"):
    return make_inputs(model, {"path": str(path), "trust_remote_code": False}, workload, "default", 3)[0]


def with_other_padding(inputs):
    others = inputs["input_ids"].clone()
    others[inputs["attention_mask"] == 0] = 33
    assert not torch.equal(others, inputs["input_ids"])
    return {**inputs, "input_ids": others}


def forward(model):
    return lambda values: make_workload("forward", model, values).run()


def test_the_second_text_ends_earlier(run, llama):
    job = run.reference(llama)
    inputs = load_file(job.out / "inputs.safetensors")
    assert inputs["attention_mask"].tolist() == [[1] * 16, [1] * 12 + [0] * 4]
    end = json.loads((Path(llama["path"]) / "config.json").read_text())["eos_token_id"]
    assert inputs["input_ids"][0, 15] == inputs["input_ids"][1, 11] == end
    assert inputs["input_ids"][1, 12:].unique().numel() == 1
    assert job.facts["padding"] == [{"mask": "attention_mask", "leaves": ["logits"]}]


def test_what_a_decoder_goes_on_with_begins_later(run, llama):
    job = run.reference(llama, workload="generate")
    inputs = load_file(job.out / "inputs.safetensors")
    assert inputs["attention_mask"].tolist() == [[1] * 16, [0] * 4 + [1] * 12]
    assert inputs["input_ids"][1, :4].unique().numel() == 1
    assert "padding" not in job.facts


def test_an_encoder_before_a_decoder_ends_earlier_also_to_generate():
    config = BartConfig(vocab_size=64, d_model=32, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=32)
    assert inputs_of(BartModel(config), "generate")["attention_mask"][1].tolist() == [1] * 12 + [0] * 4


def test_a_tokenizer_ends_the_shorter_text_itself(tmp_path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "farm", "model", "numbers", "river", "seven"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    inputs = inputs_of(bert(pad_token_id=0), "forward", tmp_path)
    assert inputs["attention_mask"].tolist() == [[1] * 16, [1] * 12 + [0] * 4]
    assert inputs["input_ids"][:, 0].tolist() == [2, 2]
    assert inputs["input_ids"][0, 15] == inputs["input_ids"][1, 11] == 3
    assert inputs["input_ids"][1, 12:].tolist() == [0] * 4


def test_the_padding_token_is_the_configurations_own():
    assert inputs_of(bert(), "forward")["input_ids"][1, 12:].tolist() == [PAD] * 4
    assert inputs_of(bert(pad_token_id=None), "forward")["input_ids"][1, 12:].tolist() == [0] * 4


def test_a_loss_leaves_padding_out(run, llama):
    inputs = load_file(run.reference(llama, workload="train-step").out / "inputs.safetensors")
    assert torch.equal(inputs["labels"] == -100, inputs["attention_mask"] == 0)
    inputs = inputs_of(bert(BertForTokenClassification), "train-step")
    assert torch.equal(inputs["labels"] == -100, inputs["attention_mask"] == 0)
    inputs = inputs_of(bert(BertForQuestionAnswering), "train-step")
    assert max(inputs["start_positions"].max(), inputs["end_positions"].max()) < 12


@pytest.mark.parametrize("kind", [BertModel, BertForTokenClassification])
def test_a_training_step_does_not_depend_on_what_is_padded(kind):
    model = bert(kind)
    inputs = inputs_of(model, "train-step")
    first, second = (
        make_workload("train-step", copy.deepcopy(model), values).run()
        for values in (inputs, with_other_padding(inputs))
    )
    assert torch.equal(first["loss"], second["loss"])
    name = "gradient.encoder.layer.1.output.dense.weight"
    name = name if name in first else name.replace("gradient.", "gradient.bert.")
    assert first[name].abs().max() > 0
    assert torch.allclose(first[name], second[name], atol=1e-7)


def test_real_positions_do_not_depend_on_what_is_padded():
    model = bert()
    inputs = inputs_of(model, "forward")
    real = inputs["attention_mask"] == 1
    first, second = (forward(model)(values) for values in (inputs, with_other_padding(inputs)))
    name = "last_hidden_state"
    assert torch.allclose(first[name][real], second[name][real], atol=1e-6)
    assert not torch.allclose(first[name][~real], second[name][~real], atol=1e-2)
    assert torch.allclose(first["pooler_output"], second["pooler_output"], atol=1e-6)
    assert report(inputs, forward(model), first) == [{"mask": "attention_mask", "leaves": [name]}]


def test_a_decoders_places_are_not_its_encoders():
    torch.manual_seed(0)
    config = BartConfig(vocab_size=64, d_model=32, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=32)
    model = BartModel(config).eval()
    inputs = inputs_of(model, "forward")
    outputs = forward(model)(inputs)
    assert outputs["last_hidden_state"].shape == outputs["encoder_last_hidden_state"].shape
    assert report(inputs, forward(model), outputs)[0]["leaves"] == ["encoder_last_hidden_state"]


def test_a_leaf_of_the_same_shape_by_accident_is_not_told():
    model = bert(hidden_size=16)
    inputs = inputs_of(model, "forward")

    def run(values):
        made = flatten(model(**values))
        # Two rows of sixteen, of no tokens.
        return {**made, "table": model.embeddings.token_type_embeddings.weight, "mean": made["pooler_output"]}

    outputs = run(inputs)
    assert tuple(outputs["table"].shape) == tuple(outputs["mean"].shape) == (2, 16)
    assert report(inputs, run, outputs)[0]["leaves"] == ["last_hidden_state"]


class Hidden(PreTrainedModel):
    """Shows nothing of what is padded, as models do that multiply their embeddings with the mask."""

    config_class = PretrainedConfig

    def __init__(self):
        super().__init__(PretrainedConfig(vocab_size=64))
        self.embedding = torch.nn.Embedding(64, 8)

    def forward(self, input_ids, attention_mask=None, token_type_ids=None):
        return {"hidden": self.embedding(input_ids) * attention_mask[..., None]}


def test_places_are_told_also_where_padding_shows_nothing():
    model = Hidden()
    inputs = inputs_of(model, "forward")
    assert inputs["attention_mask"].sum() == 28
    told = report(inputs, lambda values: model(**values), model(**inputs))
    assert told == [{"mask": "attention_mask", "leaves": ["hidden"]}]


def test_nothing_is_told_where_nothing_is_padded_or_no_shorter_text_can_be_run():
    model = Hidden()
    inputs = inputs_of(model, "forward")
    whole = {**inputs, "attention_mask": torch.ones_like(inputs["attention_mask"])}
    assert report(whole, lambda values: model(**values), model(**inputs)) == []

    def refuse(values):
        raise ValueError("sixteen tokens or none")

    assert report(inputs, refuse, model(**inputs)) == []


def test_a_model_that_pools_at_the_last_token_finds_it():
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=64, n_embd=32, n_layer=1, n_head=2, eos_token_id=END, pad_token_id=PAD)
    model = GPT2ForSequenceClassification(config).eval()
    inputs = inputs_of(model, "forward")
    assert inputs["input_ids"][1, 11] == END
    alone = model(input_ids=inputs["input_ids"][1:, :12]).logits
    assert torch.allclose(model(**inputs).logits[1:], alone, atol=1e-6)
