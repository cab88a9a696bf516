import json
import shutil
from pathlib import Path

import pytest
import torch
from farm import Farm


@pytest.fixture(scope="session")
def farm(tmp_path_factory):
    """One zygote for the CPU, shared: it has to survive all that its jobs do."""
    home = {"HOME": str(tmp_path_factory.mktemp("home"))}
    farm = Farm(environment=home, harnesses=("diffusers", "timm", "sentence-transformers"))
    yield farm
    code, errors = farm.stop()
    assert code == 0, errors


@pytest.fixture(scope="session")
def llama(tmp_path_factory):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
        attention_dropout=0.5,
    )
    path = tmp_path_factory.mktemp("llama")
    LlamaForCausalLM(config).save_pretrained(path)
    return description(path, "llama", "LlamaForCausalLM")


@pytest.fixture
def toy(tmp_path):
    """Makes a repository with code of its own, which behaves as it is told."""

    def make(behaviour, trusted=True):
        from safetensors.torch import save_file

        path = tmp_path / f"toy-{behaviour}"
        path.mkdir()
        shutil.copy(Path(__file__).with_name("modeling_toy.py"), path)
        config = {
            "model_type": "toy",
            "architectures": ["ToyModel"],
            "behaviour": behaviour,
            "auto_map": {"AutoConfig": "modeling_toy.ToyConfig", "AutoModel": "modeling_toy.ToyModel"},
        }
        (path / "config.json").write_text(json.dumps(config))
        weights = {
            "embedding.weight": torch.randn(32, 8),
            "projection.weight": torch.randn(8, 8),
            "projection.bias": torch.randn(8),
        }
        save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
        return description(path, "toy", "ToyModel", trusted)

    return make


def description(path, architecture, class_name, trusted=False):
    return {
        "path": str(path),
        "harness": "transformers",
        "architecture": architecture,
        "class": class_name,
        "weights": "real",
        "trust_remote_code": trusted,
    }


@pytest.fixture
def run(farm, tmp_path):
    """Runs requests: `run.reference(model)`, `run.case(model, reference)`."""
    return Runs(farm, tmp_path)


class Runs:
    def __init__(self, farm, folder):
        self.farm = farm
        self.folder = folder
        self.count = 0

    def request(self, model, **changes):
        self.count += 1
        out = self.folder / f"out-{self.count}"
        out.mkdir()
        common = {"protocol": 1, "out": str(out), "workload": "forward", "seed": 3, "model": model}
        return {**common, "dtype": "float32", "precision": "highest", **changes}

    def reference(self, model, **changes):
        return self.finish(self.request(model, kind="reference", **{"inputs": "default", **changes}))

    def case_request(self, model, inputs, **changes):
        case = {
            "attention": None,
            "mode": "strict-eager",
            "inputs_file": str(inputs),
            "device": "cpu",
            "compile_backend": "aot_eager",
        }
        return self.request(model, kind="case", **{**case, **changes})

    def case(self, model, inputs, **changes):
        return self.finish(self.case_request(model, inputs, **changes))

    def toy_inputs(self):
        from safetensors.torch import save_file

        path = self.folder / "toy-inputs.safetensors"
        save_file({"input_ids": torch.arange(8).reshape(2, 4)}, path)
        return path

    def finish(self, request):
        job = self.farm.spawn(request)
        job.out = Path(request["out"])
        job.finish()
        job.exited = self.farm.receive()
        assert job.exited["job"] == job.number
        return job
