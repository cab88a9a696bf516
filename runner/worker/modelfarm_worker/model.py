"""Loads a model from local files, on the CPU, in a dtype."""

from pathlib import Path
from typing import Any

import torch

_DTYPES = {
    name: getattr(torch, name)
    for name in ("float64", "float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")
    if hasattr(torch, name)
}


class RequestError(Exception):
    """The request asks for something that this worker cannot do or that the model cannot be."""


class UnsafeWeightsError(Exception):
    """The repository's weights could only be read by running code that comes with them."""


class MissingWeightsError(Exception):
    """The repository's weights are not all of the model's."""


class UntrustedCodeError(Exception):
    """The model is code of its repository, and the request does not trust it."""


def parse_dtype(name: str) -> torch.dtype:
    try:
        return _DTYPES[name]
    except KeyError:
        raise RequestError(f"unknown dtype {name!r}: expected one of {', '.join(_DTYPES)}") from None


def load_model(model: dict[str, Any], dtype: torch.dtype, attention: str | None, seed: int) -> torch.nn.Module:
    """The model that a request describes, in evaluation mode."""
    if model["harness"] != "transformers":
        from modelfarm_worker.harness import driver

        return driver(model["harness"]).load(model, dtype, attention, seed)
    path = Path(model["path"])
    trust = model["trust_remote_code"] is True
    config = _config(path, trust)
    kind = _model_class(path, config, model["class"], trust)
    options: dict[str, Any] = {"dtype": dtype}
    if attention is not None:
        options["attn_implementation"] = attention
    torch.manual_seed(seed)
    match model["weights"]:
        case "real":
            loaded, loading = kind.from_pretrained(
                path,
                config=config,
                local_files_only=True,
                use_safetensors=_has_safetensors(path),
                weights_only=True,
                output_loading_info=True,
                **options,
            )
            check_weights(loading)
        case "random":
            loaded = kind._from_config(config, **options)
        case other:
            raise RequestError(f"unknown weights {other!r}: expected real or random")
    _check_attention(loaded, attention)
    return loaded.eval()


def _config(path: Path, trust: bool) -> Any:
    import transformers

    try:
        return transformers.AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=trust)
    except ValueError as error:
        if not trust and "trust_remote_code" in str(error):
            raise UntrustedCodeError(
                "the repository's configuration is code of its own, which is not trusted: "
                "trust this repository at this commit in the matrix to run it"
            ) from error
        raise


def _model_class(path: Path, config: Any, name: str, trust_remote_code: bool) -> type:
    import transformers

    remote = getattr(config, "auto_map", None) or {}
    if trust_remote_code:
        from transformers.dynamic_module_utils import get_class_from_dynamic_module

        for reference in remote.values():
            if isinstance(reference, str) and reference.rsplit(".", 1)[-1] == name:
                return get_class_from_dynamic_module(reference, path, local_files_only=True)
    kind = getattr(transformers, name, None)
    if not (isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel)):
        missing = f"transformers {transformers.__version__} has no model class {name!r}"
        if remote and not trust_remote_code:
            raise UntrustedCodeError(f"{missing}: it is in the repository's own code, which is not trusted")
        raise RequestError(missing)
    return kind


def _has_safetensors(path: Path) -> bool:
    """Whether the weights are safetensors; without any, those that torch can read without running code are taken."""
    names = {file.name for file in path.iterdir()}
    if any(name.endswith((".safetensors", ".safetensors.index.json")) for name in names):
        return True
    if any(name.endswith((".bin", ".bin.index.json")) for name in names):
        return False
    raise UnsafeWeightsError(
        f"no safetensors and no PyTorch weights among the repository's files: {', '.join(sorted(names)[:20])}"
    )


def check_weights(loading: dict[str, Any]) -> None:
    """The library draws missing weights at random and goes on: alike on both sides, they would pass for the model's."""
    missing = sorted(map(str, loading["missing_keys"]))
    if missing:
        shown = ", ".join(missing[:10]) + (", ..." if len(missing) > 10 else "")
        raise MissingWeightsError(f"the repository's weights lack {len(missing)} of the model's parameters: {shown}")


def _check_attention(loaded: torch.nn.Module, attention: str | None) -> None:
    """A model that was told an attention and silently runs another would be measured under a wrong name."""
    actual = getattr(loaded.config, "_attn_implementation", None)
    if attention is not None and actual is not None and actual != attention:
        raise RequestError(f"the model runs attention {actual!r} although {attention!r} was asked for")


def load_reference_model(
    model: dict[str, Any], dtype: torch.dtype, attention: str | None, seed: int
) -> torch.nn.Module:
    """As `load_model`. Without a wish, eager attention where the model has it: its products are plain matmuls,
    which the yardstick can round and float64 can compute."""
    if attention is not None:
        loaded = load_model(model, dtype, attention, seed)
    else:
        try:
            loaded = load_model(model, dtype, "eager", seed)
        except (ValueError, RequestError):
            loaded = load_model(model, dtype, None, seed)
    if hasattr(loaded, "set_experts_implementation"):
        # As with attention: a loop of plain matmuls, as grouped ones know no float64.
        loaded.set_experts_implementation("eager")
    return loaded
