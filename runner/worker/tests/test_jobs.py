"""References and cases on the CPU, end to end."""

import pickle
from pathlib import Path

import pytest
import torch
from conftest import description
from safetensors.torch import load_file


def outputs(job, role="outputs"):
    assert job.of("done"), (job.events[-1], job.printed())
    return load_file(job.out / job.of("done")[0]["files"][role])


def rmse(value, reference):
    return (value.double() - reference.double()).square().mean().sqrt().item()


def test_forward_agrees_with_its_reference(run, llama):
    reference = run.reference(llama)
    inputs = reference.out / "inputs.safetensors"
    case = run.case(llama, inputs, attention="eager")
    expected = outputs(reference, "reference")
    assert set(expected) == {"logits"}
    assert expected["logits"].dtype == torch.float64
    assert reference.facts["reference_dtype"] == "float64"
    assert torch.equal(expected["logits"], outputs(reference, "repeat")["logits"])
    assert 0 < rmse(outputs(case)["logits"], expected["logits"]) < 1e-6
    assert case.facts["parameter_devices"] == case.facts["input_devices"] == ["cpu"]
    assert case.facts["stage_ms"].keys() == {"load", "place", "execute"}
    assert [event["event"] for event in case.events if event["event"] in ("need_device", "device_done")] == [
        "need_device",
        "device_done",
    ]


def test_yardstick_has_the_error_of_its_precision(run, llama):
    error = {}
    for precision in ("highest", "high", "medium"):
        job = run.reference(llama, precision=precision)
        error[precision] = rmse(outputs(job, "yardstick")["logits"], outputs(job, "reference")["logits"])
    assert error["highest"] < error["high"] < error["medium"]
    assert error["medium"] > 1000 * error["highest"]


def test_bfloat16_reference_differs_only_by_arithmetic(run, llama):
    job = run.reference(llama, dtype="bfloat16")
    reference, yardstick = outputs(job, "reference"), outputs(job, "yardstick")
    assert reference["logits"].dtype == torch.float64
    assert yardstick["logits"].dtype == torch.bfloat16
    assert 0 < rmse(yardstick["logits"], reference["logits"]) < 0.02 * reference["logits"].std()


def test_inputs_depend_on_the_seed_alone(run, llama):
    first, second = run.reference(llama), run.reference(llama)
    other = run.reference(llama, seed=4)
    files = [(job.out / "inputs.safetensors").read_bytes() for job in (first, second, other)]
    assert files[0] == files[1]
    assert files[0] != files[2]
    inputs = load_file(first.out / "inputs.safetensors")
    assert inputs["input_ids"].shape == (2, 16)
    assert inputs["input_ids"].min() >= 0
    assert inputs["input_ids"].max() < 64
    assert inputs["attention_mask"].shape == (2, 16)


@pytest.mark.parametrize("mode", ["strict-eager", "compiled"])
def test_generate(run, llama, mode):
    reference = run.reference(llama, workload="generate")
    case = run.case(llama, reference.out / "inputs.safetensors", workload="generate", mode=mode)
    expected, actual = outputs(reference, "reference"), outputs(case)
    assert actual["tokens"].shape == (2, 8)
    assert actual["tokens"].dtype == torch.int64
    assert actual["logits"].shape == (8, 2, 64)
    assert torch.equal(actual["tokens"], expected["tokens"])
    assert torch.equal(actual["logits"].argmax(-1).T, actual["tokens"])
    assert rmse(actual["logits"], expected["logits"]) < 1e-6
    assert case.facts["tokens_per_s"] > 0
    if mode == "compiled":
        assert case.facts["graph_count"] == 1  # the pass that makes one token; the prompt's is not compiled


@pytest.mark.parametrize("mode", ["strict-eager", "compiled"])
def test_train_step_applies_one_step(run, llama, mode):
    reference = run.reference(llama, workload="train-step")
    case = run.case(llama, reference.out / "inputs.safetensors", workload="train-step", mode=mode)
    expected, actual = outputs(reference, "reference"), outputs(case)
    assert set(expected) == set(actual)
    assert abs(actual["loss"].item() - expected["loss"].item()) < 1e-5
    before = load_file(f"{llama['path']}/model.safetensors")
    name = "model.layers.0.mlp.up_proj.weight"
    assert actual[f"gradient.{name}"].abs().max() > 0
    stepped = before[name] - 0.1 * actual[f"gradient.{name}"]
    assert torch.allclose(actual[f"parameter.{name}"], stepped, atol=1e-7)
    for leaf in expected:
        assert rmse(actual[leaf], expected[leaf]) < 1e-5, leaf


def test_graph_breaks_are_counted_with_their_reason(run, toy):
    facts = run.case(toy("graph_break"), run.toy_inputs(), mode="compiled").facts
    assert facts["graph_count"] == 3  # before the function that breaks, the rest of it, and after it
    (found,) = facts["graph_breaks"]
    assert "graph_break" in found["reason"]
    assert found["count"] >= 1


def test_a_whole_graph_has_no_breaks(run, toy):
    facts = run.case(toy("plain"), run.toy_inputs(), mode="compiled").facts
    assert (facts["graph_count"], facts["graph_breaks"], facts["recompile_count"]) == (1, [], 0)


def test_unknown_attention_is_an_error(run, llama):
    reference = run.reference(llama)
    job = run.case(llama, reference.out / "inputs.safetensors", attention="telepathy")
    (failed,) = job.of("failed")
    assert "telepathy" in failed["message"]
    assert job.of("stage")[-1]["stage"] == "load"


def test_an_unknown_harness_is_an_error(run, llama):
    job = run.reference({**llama, "harness": "keras"})
    assert "keras" in job.of("failed")[0]["message"]


def test_a_model_of_another_harness_is_an_error(run, llama):
    job = run.reference({**llama, "harness": "timm"})
    assert "timm" in job.of("failed")[0]["message"]


class Trap:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (self.path, "w"))


def test_pickled_code_in_weights_is_not_run(run, llama, tmp_path):
    repository, trace = tmp_path / "pickled", tmp_path / "trace"
    repository.mkdir()
    (repository / "config.json").write_bytes((Path(llama["path"]) / "config.json").read_bytes())
    (repository / "pytorch_model.bin").write_bytes(pickle.dumps({"weight": Trap(str(trace))}))
    job = run.reference(description(repository, "llama", "LlamaForCausalLM"))
    assert job.of("failed")
    assert not trace.exists()
