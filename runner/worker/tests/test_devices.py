"""What tells that something left its device. PyTorch's `meta` device stands for one: it is on every machine."""

import os

import pytest
import torch
from farm import Farm
from safetensors.torch import load_file

from modelfarm_worker.cpu_observer import CpuObserver, operators_on_cpu
from modelfarm_worker.place import place


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(4, 3)
        self.head = torch.nn.Linear(3, 4, bias=False)
        self.head.weight = self.embedding.weight


def test_tied_parameters_stay_tied_on_another_device():
    plain = Tied().to("meta")
    assert plain.head.weight is not plain.embedding.weight, "PyTorch keeps ties by itself now: place() is not needed"
    model = Tied()
    assert place(model, "meta") == ["head.weight"]
    assert model.head.weight is model.embedding.weight
    assert model.head.weight.device.type == "meta"


def test_operators_on_the_cpu_are_seen():
    here, there = torch.ones(2, 3), torch.ones(2, 3, device="meta")
    with CpuObserver() as observer:
        torch.tanh(there) @ there.T
        here.to("meta").view(3, 2)
        here.T.clone()
        torch.ones(1) + 1  # a scalar
        torch.arange(4) * 2  # indices
    assert observer.operators == set()
    with observer:
        torch.tanh(here)
        torch.cat([here, here])
    assert observer.operators == {"aten.tanh.default", "aten.cat.default"}


def test_operators_on_the_cpu_are_seen_in_a_graph():
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph.graph)
        return lambda *_: (torch.ones(2, 3),)  # the meta device has no values to take to the CPU

    def trip(value):
        return torch.sigmoid(torch.tanh(value).to("cpu", torch.float64))

    torch.compile(trip, backend=backend)(torch.ones(2, 3, device="meta"))
    assert [operators_on_cpu(graph) for graph in graphs] == [{"sigmoid"}]


@pytest.mark.skipif("TPU_LIBRARY_PATH" not in os.environ, reason="needs TPU_LIBRARY_PATH: a PJRT plugin")
@pytest.mark.parametrize("mode", ["strict-eager", "defer-and-fuse", "compiled"])
def test_forward_on_torchtpu(torchtpu, run, llama, mode):
    reference = run.reference(llama)
    run.farm = torchtpu
    case = run.case(
        llama,
        reference.out / "inputs.safetensors",
        attention="eager",
        mode=mode,
        device="tpu",
        compile_backend="tpu",
    )
    assert case.of("done"), (case.events[-1], case.printed())
    expected = load_file(reference.out / "reference.safetensors")["logits"]
    actual = load_file(case.out / "outputs.safetensors")["logits"]
    assert (actual - expected).abs().max() < 1e-5
    facts = case.facts
    assert facts["parameter_devices"] == facts["input_devices"] == facts["output_devices"] == ["tpu:0"]
    assert facts["fallbacks"] == []
    assert ("compile" in facts["stage_ms"]) == (mode == "compiled")
    if mode == "compiled":
        assert facts["graph_count"] == 1


@pytest.fixture(scope="module")
def torchtpu(tmp_path_factory):
    plugin = {name: value for name, value in os.environ.items() if name.startswith(("TPU_", "MODELFARM_", "XLA_"))}
    farm = Farm("torchtpu", {**plugin, "HOME": str(tmp_path_factory.mktemp("home"))})
    yield farm
    code, errors = farm.stop()
    assert code == 0, errors
