"""The harnesses besides transformers, end to end: references and cases of small models that their libraries made."""

import json
import os
import shutil

import pytest
import torch
from farm import Farm
from safetensors.torch import load_file, save_file

from modelfarm_worker.harness import driver
from modelfarm_worker.harness.nested_names import flatten_tensors, insert_tensors, without_tensors
from modelfarm_worker.harness.plain_attention import plain_attention
from modelfarm_worker.model import load_model

HARNESSES = ("timm", "diffusers", "diffusers-pipeline", "sentence-encoder", "cross-encoder")
UNET = {
    "sample_size": 8,
    "block_out_channels": [32, 64],
    "layers_per_block": 1,
    "norm_num_groups": 8,
    "cross_attention_dim": 16,
    "attention_head_dim": 8,
    "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D"],
    "up_block_types": ["CrossAttnUpBlock2D", "UpBlock2D"],
}
BERT = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": 64,
}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A small model of each kind, by name."""
    torch.manual_seed(0)
    makers = (_timm, _diffusers, _pipeline, _encoder, _cross_encoder)
    return {name: maker(tmp_path_factory.mktemp(name)) for name, maker in zip(HARNESSES, makers, strict=True)}


def described(path, harness, class_name, architecture="x"):
    return {
        "path": str(path),
        "harness": harness,
        "architecture": architecture,
        "class": class_name,
        "weights": "real",
        "trust_remote_code": False,
    }


def _timm(path):
    import timm
    from timm.models import save_for_hf

    size = {"input_size": (3, 32, 32)}
    model = timm.create_model("test_vit", num_classes=10, img_size=32, pretrained_cfg_overlay=size)
    save_for_hf(model, str(path), safe_serialization=True, data_config=size)
    return described(path, "timm", "test_vit", "test_vit")


def _diffusers(path):
    import diffusers

    diffusers.UNet2DConditionModel(**UNET).save_pretrained(path)
    return described(path, "diffusers", "UNet2DConditionModel")


def _pipeline(path):
    import transformers

    _diffusers(path / "unet")
    config = transformers.CLIPTextConfig(**BERT, eos_token_id=2, bos_token_id=1, pad_token_id=0)
    transformers.CLIPTextModel(config).save_pretrained(path / "text_encoder")
    index = {
        "_class_name": "StableDiffusionPipeline",
        "unet": ["diffusers", "UNet2DConditionModel"],
        "text_encoder": ["transformers", "CLIPTextModel"],
        "scheduler": ["diffusers", "DDIMScheduler"],
        "safety_checker": [None, None],
    }
    (path / "model_index.json").write_text(json.dumps(index))
    return described(path, "diffusers", "StableDiffusionPipeline")


def _backbone(path, class_name, **settings):
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = ["[PAD]", "[UNK]"]
    trainer = trainers.BpeTrainer(
        vocab_size=64, special_tokens=special, initial_alphabet=list("abcdefghijklmnopqrstuvw")
    )
    tokenizer.train_from_iterator(["the farm ran every model"], trainer)
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=64
    ).save_pretrained(path)
    config = transformers.BertConfig(**BERT, pad_token_id=0, **settings)
    getattr(transformers, class_name)(config).save_pretrained(path)


def _encoder(path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense, Transformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

    _backbone(path / "backbone", "BertModel")
    first = Transformer(str(path / "backbone"))
    modules = [first, Pooling(32, pooling_mode="mean"), Dense(32, 16), Normalize()]
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(path / "model"), create_model_card=False)
    return described(path / "model", "sentence-transformers", "SentenceTransformer")


def _cross_encoder(path):
    _backbone(path, "BertForSequenceClassification", num_labels=1)
    return described(path, "sentence-transformers", "CrossEncoder")


def outputs(job, role="outputs"):
    assert job.of("done"), (job.events[-1], job.printed())
    return load_file(job.out / job.of("done")[0]["files"][role])


def assert_close(actual, expected, limit):
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        error = (actual[name].double() - value.double()).abs().max().item()
        assert error < limit * max(1.0, value.abs().max().item()), f"{name} is off by {error}"


@pytest.mark.parametrize("name", HARNESSES)
@pytest.mark.parametrize("mode", ["strict-eager", "compiled"])
def test_forward_agrees_with_its_reference(run, models, name, mode):
    reference = run.reference(models[name])
    expected = outputs(reference, "reference")
    assert reference.facts["reference_dtype"] == "float64"
    assert reference.facts["reference_attention"] == "eager"
    assert {value.dtype for value in expected.values()} == {torch.float64}
    assert_close(outputs(reference, "repeat"), expected, 1e-30)
    assert_close(outputs(reference, "yardstick"), expected, 1e-5)
    case = run.case(models[name], reference.out / "inputs.safetensors", attention="eager", mode=mode)
    assert_close(outputs(case), expected, 1e-5)
    if mode == "compiled":
        assert case.facts["graph_count"] >= 1
        assert case.facts["graph_breaks"] == []


@pytest.mark.parametrize("name", ["timm", "diffusers", "sentence-encoder"])
def test_train_step_moves_the_parameters(run, models, name):
    reference = run.reference(models[name], workload="train-step")
    case = run.case(models[name], reference.out / "inputs.safetensors", workload="train-step", attention="eager")
    expected = outputs(reference, "reference")
    assert any(leaf.startswith("gradient.") for leaf in expected)
    assert_close(outputs(case), expected, 1e-4)


@pytest.mark.parametrize("name", HARNESSES)
def test_bfloat16_differs_only_by_arithmetic(run, models, name):
    job = run.reference(models[name], dtype="bfloat16")
    assert_close(outputs(job, "yardstick"), outputs(job, "reference"), 0.1)


def test_own_attention_is_the_libraries(run, models):
    """What a request without a wish runs computes the same as the attention that it is measured by."""
    for name in ("timm", "diffusers", "sentence-encoder"):
        inputs = run.reference(models[name]).out / "inputs.safetensors"
        assert_close(
            outputs(run.case(models[name], inputs)), outputs(run.case(models[name], inputs, attention="eager")), 1e-5
        )


def test_inputs_follow_from_configuration_and_seed(run, models):
    inputs = {name: load_file(run.reference(models[name]).out / "inputs.safetensors") for name in HARNESSES}
    assert inputs["timm"]["x"].shape == (2, 3, 32, 32)
    assert inputs["diffusers"]["sample"].shape == (2, 4, 8, 8)
    assert inputs["diffusers"]["encoder_hidden_states"].shape == (2, 8, 16)
    assert {"unet.sample", "unet.timestep", "text_encoder.input_ids"} <= inputs["diffusers-pipeline"].keys()
    for name in ("sentence-encoder", "cross-encoder"):
        assert inputs[name]["attention_mask"].min() == 0, "one row is shorter"
    for name in ("timm", "diffusers"):
        other = load_file(run.reference(models[name], seed=4).out / "inputs.safetensors")
        again = load_file(run.reference(models[name]).out / "inputs.safetensors")
        assert any(not torch.equal(other[leaf], value) for leaf, value in inputs[name].items())
        assert all(torch.equal(again[leaf], value) for leaf, value in inputs[name].items())


def test_timm_computes_what_the_library_does(run, models):
    import timm

    job = run.reference(models["timm"])
    own = timm.create_model(f"local-dir:{models['timm']['path']}", pretrained=True).eval()
    with torch.no_grad():
        expected = own(load_file(job.out / "inputs.safetensors")["x"])
    assert_close(outputs(job, "reference"), {"output": expected}, 1e-5)


def test_sentence_embeddings_are_the_packages(models):
    from sentence_transformers import CrossEncoder, SentenceTransformer

    from modelfarm_worker.harness import sentence_transformers as harness

    for name, kind in (("sentence-encoder", SentenceTransformer), ("cross-encoder", CrossEncoder)):
        model = models[name]
        ours = load_model(model, torch.float32, None, 0)
        inputs, sources = driver(model["harness"]).make_inputs(ours, model, "forward", "default", 0)
        assert set(sources.values()) == {"tokenizer"}
        with torch.no_grad():
            (answer,) = ours(**inputs).values()
        own = kind(model["path"], device="cpu")
        if kind is CrossEncoder:
            pairs = [(harness._QUESTION, text) for text in harness._SENTENCES]
            expected = own.predict(pairs, convert_to_tensor=True).reshape(answer.shape)
        else:
            expected = own.encode(list(harness._SENTENCES), convert_to_tensor=True)
        assert torch.equal(answer, expected)


@pytest.mark.parametrize("name", HARNESSES)
def test_missing_weights_are_an_error(run, models, name, tmp_path):
    path = tmp_path / "model"
    shutil.copytree(models[name]["path"], path)
    weights = sorted(path.rglob("*.safetensors"), key=lambda file: file.stat().st_size)[-1]
    kept = load_file(weights)
    lost = next(leaf for leaf in sorted(kept) if leaf.endswith("weight"))
    kept.pop(lost)
    save_file(kept, weights, metadata={"format": "pt"})
    (failed,) = run.reference({**models[name], "path": str(path)}).of("failed")
    assert failed["exception"].endswith("MissingWeightsError"), failed
    assert lost.rsplit(".", 2)[-2] in failed["message"]


def test_only_safetensors_are_read(run, models, tmp_path):
    for name in ("timm", "diffusers", "sentence-encoder"):
        path = tmp_path / name
        shutil.copytree(models[name]["path"], path)
        for file in list(path.rglob("*.safetensors")):
            torch.save(load_file(file), file.with_suffix(".bin"))
            file.unlink()
        (failed,) = run.reference({**models[name], "path": str(path)}).of("failed")
        assert failed["exception"].endswith("UnsafeWeightsError"), failed


def test_code_that_is_not_the_librarys_is_refused(run, models, tmp_path):
    path = tmp_path / "model"
    shutil.copytree(models["sentence-encoder"]["path"], path)
    modules = json.loads((path / "modules.json").read_text())
    modules[-1]["type"] = "custom.Module"
    (path / "modules.json").write_text(json.dumps(modules))
    (failed,) = run.reference({**models["sentence-encoder"], "path": str(path)}).of("failed")
    assert failed["exception"].endswith("UntrustedCodeError"), failed
    for name, class_name in (("diffusers", "FluxPipeline"), ("sentence-encoder", "os.system")):
        (failed,) = run.reference({**models[name], "class": class_name}).of("failed")
        assert failed["exception"].endswith("RequestError"), failed
    path = tmp_path / "config"
    shutil.copytree(models["timm"]["path"], path)
    config = json.loads((path / "config.json").read_text())
    config["model_args"]["checkpoint_path"] = "/etc/passwd"
    (path / "config.json").write_text(json.dumps(config))
    (failed,) = run.reference({**models["timm"], "path": str(path)}).of("failed")
    assert "checkpoint_path" in failed["message"]


@pytest.mark.parametrize("case", ["plain", "causal", "boolean", "added", "grouped", "scaled"])
def test_plain_attention_is_the_fused_one(case):
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    heads = 2 if case == "grouped" else 4
    query, key, value = normal(2, 4, 5, 8), normal(2, heads, 7, 8), normal(2, heads, 7, 8)
    options = {}
    if case == "causal":
        options["is_causal"] = True
    if case == "boolean":
        options["attn_mask"] = normal(2, 1, 5, 7) > 0
        options["attn_mask"][0, 0, 0] = False  # a row that sees nothing
    if case == "added":
        options["attn_mask"] = normal(2, 1, 5, 7)
    if case == "grouped":
        options["enable_gqa"] = True
    if case == "scaled":
        options["scale"] = 0.3
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, **options)
    assert torch.allclose(plain_attention(query, key, value, **options), expected, atol=1e-12)


def test_nested_arguments_come_back_from_a_table():
    first, second = torch.ones(2), torch.zeros(3)
    arguments = {"a": first, "b": {"c": second, "d": 3}, "e": [first, "x"], "f": None, "g": (4, 5)}
    table = flatten_tensors(arguments)
    assert table.keys() == {"a", "b.c", "e.0"}
    rest = without_tensors(arguments)
    assert rest == {"a": None, "b": {"c": None, "d": 3}, "e": [None, "x"], "f": None, "g": (4, 5)}
    back = insert_tensors(rest, table)
    assert back["a"] is first
    assert back["b"]["c"] is second
    assert back["e"] == [first, "x"]
    assert back["g"] == (4, 5)


@pytest.mark.skipif("TPU_LIBRARY_PATH" not in os.environ, reason="needs TPU_LIBRARY_PATH: a PJRT plugin")
@pytest.mark.parametrize("mode", ["strict-eager", "compiled"])
def test_forward_on_torchtpu(torchtpu, run, models, mode):
    for name in ("timm", "diffusers-pipeline", "sentence-encoder"):
        run.farm, cpu = torchtpu, run.farm
        reference = run.reference(models[name])
        case = run.case(
            models[name],
            reference.out / "inputs.safetensors",
            attention="eager",
            mode=mode,
            device="tpu",
            compile_backend="tpu",
        )
        run.farm = cpu
        assert_close(outputs(case), outputs(reference, "reference"), 1e-4)
        assert case.facts["parameter_devices"] == case.facts["output_devices"] == ["tpu:0"]
        assert case.facts["fallbacks"] == []


@pytest.fixture(scope="module")
def torchtpu(tmp_path_factory):
    plugin = {name: value for name, value in os.environ.items() if name.startswith(("TPU_", "MODELFARM_", "XLA_"))}
    farm = Farm("torchtpu", {**plugin, "HOME": str(tmp_path_factory.mktemp("home"))}, harnesses=("timm", "diffusers"))
    yield farm
    code, errors = farm.stop()
    assert code == 0, errors
