"""Models of timm: `config.json` names the architecture, its arguments and the size of its pictures."""

import inspect
import json
from pathlib import Path
from typing import Any

import torch

from modelfarm_worker.harness.missing_weights import all_weights_required
from modelfarm_worker.harness.plain_attention import choose_attention
from modelfarm_worker.model import RequestError, UnsafeWeightsError

BATCH = 2
# Arguments of the factory that would read other files, or more than a configuration says of a model.
_NOT_OF_A_MODEL = {
    "cache_dir",
    "checkpoint_path",
    "features_only",
    "pretrained",
    "pretrained_cfg",
    "pretrained_cfg_overlay",
    "pretrained_model_args",
    "scriptable",
}
_NOT_OF_WEIGHTS = ("architecture", "num_features", "model_args")
# Where else the same weights are to be had.
_ELSEWHERE = ("url", "hf_hub_id", "hf_hub_filename", "state_dict")
_WEIGHTS = ("model.safetensors", "open_clip_model.safetensors")


def load(model: dict[str, Any], dtype: torch.dtype, attention: str | None, seed: int) -> torch.nn.Module:
    """The model of a folder, in evaluation mode, with every one of its weights."""
    import timm

    path = Path(model["path"])
    choose_attention(attention)
    # Attention of timm's own without a fused call, where its layers have one.
    timm.layers.set_fused_attn(attention != "eager")
    weights = _weights_file(path) if model["weights"] == "real" else None
    if model["weights"] not in ("real", "random"):
        raise RequestError(f"unknown weights {model['weights']!r}: expected real or random")
    config = json.loads((path / "config.json").read_text())
    name = config.get("architecture")
    if not isinstance(name, str) or not timm.is_model(name):
        raise RequestError(f"timm {timm.__version__} has no architecture {name!r}")
    arguments = dict(config.get("model_args") or {})
    refused = sorted(_NOT_OF_A_MODEL & arguments.keys())
    if refused:
        raise RequestError(f"the configuration's model_args hold {', '.join(refused)}, which are no model's arguments")
    torch.manual_seed(seed)
    # The library's own loader, which knows how an architecture's published weights are renamed; only strictly.
    source = _pretrained_cfg(config)
    if weights is not None:
        source |= {"file": str(weights), "source": "file", "custom_load": False}
    with all_weights_required():
        loaded = timm.create_model(name, pretrained=weights is not None, pretrained_cfg=source, **arguments)
    return loaded.to(dtype).eval()


def make_inputs(
    model: torch.nn.Module, request_model: dict[str, Any], workload: str, profile: str, seed: int
) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Pictures of the size that the configuration asks for, normalised as it says."""
    channels, height, width = model.pretrained_cfg["input_size"]
    generator = torch.Generator().manual_seed(seed)
    pictures = torch.randint(0, 256, (BATCH, channels, height, width), generator=generator) / 255
    mean, deviation = (
        torch.tensor(model.pretrained_cfg.get(key) or [0.5]).flatten()[:channels].view(1, -1, 1, 1)
        for key in ("mean", "std")
    )
    name = next(iter(inspect.signature(model.forward).parameters))
    return {name: (pictures - mean) / deviation}, {name: "configuration"}


def _weights_file(path: Path) -> Path:
    for name in _WEIGHTS:
        if (path / name).is_file():
            return path / name
    names = ", ".join(sorted(file.name for file in path.iterdir())[:20])
    raise UnsafeWeightsError(f"no safetensors of a timm model among the repository's files: {names}")


def _pretrained_cfg(config: dict[str, Any]) -> dict[str, Any]:
    """What the configuration says of its weights. Old ones say it at their top."""
    if "pretrained_cfg" in config:
        told = dict(config["pretrained_cfg"])
        if "num_classes" in config:
            told["num_classes"] = config["num_classes"]
    else:
        told = {key: value for key, value in config.items() if key not in _NOT_OF_WEIGHTS}
    return {key: value for key, value in told.items() if key not in _ELSEWHERE}
