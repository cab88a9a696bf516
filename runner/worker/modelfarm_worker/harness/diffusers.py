"""Models and pipelines of diffusers.

A model is called once. Of a pipeline every neural component is called once, each with inputs of its own: the text
encoders, the denoiser, the decoder. The sampling loop between them is arithmetic of the scheduler on the host, and its
random numbers are a device's own; what a device computes of a pipeline is in these calls.
"""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from modelfarm_worker.harness.diffusion_arguments import Arguments, make_arguments
from modelfarm_worker.harness.nested_names import flatten_tensors, insert_tensors, without_tensors
from modelfarm_worker.harness.plain_attention import choose_attention
from modelfarm_worker.model import RequestError, UnsafeWeightsError, check_weights

# Components with parameters that a call of the pipeline leaves out, or that belong to a safety check of its results.
_NOT_RUN = ("safety_checker",)


class Diffuser(torch.nn.Module):
    """A model of the library with the arguments of its forward that are not tensors."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model
        self._fixed: Arguments = without_tensors(make_arguments(model, torch.Generator().manual_seed(0)))

    def forward(self, **inputs: torch.Tensor) -> Any:
        return self.model(**insert_tensors(self._fixed, inputs))


class Components(torch.nn.Module):
    """The neural components of a pipeline, each called with the inputs that begin with its name."""

    def __init__(self, components: dict[str, torch.nn.Module]) -> None:
        super().__init__()
        self.components = torch.nn.ModuleDict(components)

    def forward(self, **inputs: torch.Tensor) -> dict[str, Any]:
        results = {}
        for name, component in self.components.items():
            own = {key[len(name) + 1 :]: value for key, value in inputs.items() if key.startswith(f"{name}.")}
            results[name] = component(**own)
        return results


class TextEncoder(torch.nn.Module):
    """A component that transformers made."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **inputs: torch.Tensor) -> Any:
        from modelfarm_worker.workloads import forward_options

        return self.model(**inputs, **forward_options(self.model))


def load(model: dict[str, Any], dtype: torch.dtype, attention: str | None, seed: int) -> torch.nn.Module:
    """The model or the pipeline of a folder, in evaluation mode, with every one of its weights."""
    if model["weights"] not in ("real", "random"):
        raise RequestError(f"unknown weights {model['weights']!r}: expected real or random")
    choose_attention(attention)
    path = Path(model["path"])
    real = model["weights"] == "real"
    torch.manual_seed(seed)
    if not (path / "model_index.json").exists():
        return Diffuser(_model(path, model["class"], dtype, real)).eval()
    components: dict[str, torch.nn.Module] = {}
    for name, library, class_name in _listed(json.loads((path / "model_index.json").read_text())):
        if name in _NOT_RUN or not (path / name / "config.json").exists():
            continue
        if library == "diffusers":
            components[name] = Diffuser(_model(path / name, class_name, dtype, real))
        elif library == "transformers":
            components[name] = TextEncoder(_text_encoder(path / name, class_name, dtype, attention, seed, model))
        else:
            print(f"component {name} not run: its class {library}.{class_name} belongs to neither library"[:500])
    if not components:
        raise RequestError("the pipeline has no component with parameters that this worker can run")
    return Components(components).eval()


def make_inputs(
    model: torch.nn.Module, request_model: dict[str, Any], workload: str, profile: str, seed: int
) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Latents, times and conditions by configuration and signature. What a pipeline draws is among them."""
    generator = torch.Generator().manual_seed(seed)
    if isinstance(model, Diffuser):
        inputs = flatten_tensors(make_arguments(model.model, generator))
        return inputs, dict.fromkeys(inputs, "configuration")
    assert isinstance(model, Components)
    inputs, sources = {}, {}
    for name, component in model.components.items():
        if isinstance(component, Diffuser):
            made = flatten_tensors(make_arguments(component.model, generator))
            told = dict.fromkeys(made, "configuration")
        else:
            made, told = _text_inputs(component.model, Path(request_model["path"]), name, profile, seed)
        inputs |= {f"{name}.{key}": value for key, value in made.items()}
        sources |= {f"{name}.{key}": value for key, value in told.items()}
    return inputs, sources


def _listed(index: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Name, library and class of each component that a pipeline names and has."""
    for name, value in index.items():
        if not name.startswith("_") and isinstance(value, list) and len(value) == 2 and all(value):
            yield name, str(value[0]), str(value[1])


def _model(path: Path, class_name: str, dtype: torch.dtype, real: bool) -> torch.nn.Module:
    import diffusers

    kind = getattr(diffusers, class_name, None)
    if not (isinstance(kind, type) and issubclass(kind, diffusers.ModelMixin)):
        raise RequestError(f"diffusers {diffusers.__version__} has no model class {class_name!r}")
    if not real:
        return kind.from_config(kind.load_config(path, local_files_only=True)).to(dtype).eval()
    if not any(path.glob("*.safetensors")):
        raise UnsafeWeightsError(f"no safetensors among the files of {path.name}")
    with _one_variant(path) as variant:
        # In host memory and whole: what is missing must be seen, not left on the meta device.
        loaded, loading = kind.from_pretrained(
            path,
            local_files_only=True,
            use_safetensors=True,
            torch_dtype=dtype,
            low_cpu_mem_usage=False if getattr(kind, "_keep_in_fp32_modules", None) is None else None,
            output_loading_info=True,
            variant=variant,
        )
    check_weights(loading)
    return loaded.eval()


@contextlib.contextmanager
def _one_variant(path: Path) -> Iterator[str | None]:
    """`fp16` and the like where a folder has its weights under that name only."""
    names = [file.name for file in path.glob("diffusion_pytorch_model*.safetensors")]
    plain = [name for name in names if name.split(".")[1].startswith("safetensors")]
    variants = sorted({name.split(".")[1].split("-")[0] for name in names if name not in plain})
    yield None if plain or not variants else variants[0]


def _text_encoder(
    path: Path, class_name: str, dtype: torch.dtype, attention: str | None, seed: int, model: dict[str, Any]
) -> torch.nn.Module:
    from modelfarm_worker.model import load_model

    described = {**model, "path": str(path), "harness": "transformers", "class": class_name, "trust_remote_code": False}
    return load_model(described, dtype, attention, seed)


def _text_inputs(
    model: torch.nn.Module, path: Path, name: str, profile: str, seed: int
) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """As any model of transformers, with the tokenizer that the pipeline keeps beside it."""
    from modelfarm_worker.inputs import make_inputs as make_transformers_inputs

    tokenizer = path / name.replace("text_encoder", "tokenizer")
    folder = tokenizer if tokenizer.is_dir() else path / name
    described = {"path": str(folder), "harness": "transformers", "trust_remote_code": False}
    return make_transformers_inputs(model, described, "forward", profile, seed)
