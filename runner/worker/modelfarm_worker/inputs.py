"""The inputs that a model is called with: deterministic from the seed, the same for every mode and target."""

import inspect
from pathlib import Path
from typing import Any

import torch

from modelfarm_worker.labels import make_labels
from modelfarm_worker.media import Media, find_number
from modelfarm_worker.model import RequestError
from modelfarm_worker.text import BATCH, SEQUENCE_LENGTH, TextIds, position_limit


class InputsError(RequestError):
    """No inputs can be derived for this model's forward."""


def make_inputs(
    model: torch.nn.Module, request_model: dict[str, Any], workload: str, profile: str, seed: int
) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """The inputs by argument name, and for each where it comes from."""
    if profile != "default":
        raise RequestError(f"unknown input profile {profile!r}: expected default")
    parameters = inspect.signature(model.forward).parameters
    path = Path(request_model["path"])
    trust = request_model["trust_remote_code"] is True
    generator = torch.Generator().manual_seed(seed)
    inputs: dict[str, torch.Tensor] = {}
    sources: dict[str, str] = {}

    media = Media(model, path, trust, generator)
    for name, (value, source) in media.make(parameters).items():
        inputs[name], sources[name] = value, source
    if "input_ids" in parameters and not (model.main_input_name != "input_ids" and "decoder_input_ids" in parameters):
        _add_text(model, parameters, path, trust, generator, media, inputs, sources)
    if (
        "decoder_input_ids" in parameters
        and getattr(model.config, "is_encoder_decoder", False)
        and workload != "generate"
    ):
        inputs["decoder_input_ids"], sources["decoder_input_ids"] = (
            _decoder_ids(model, generator),
            "configuration",
        )
    if workload == "train-step":
        for name, value in make_labels(model, parameters, inputs, generator).items():
            inputs[name], sources[name] = value, "configuration"
    missing = [
        name
        for name, parameter in parameters.items()
        if parameter.default is inspect.Parameter.empty
        and parameter.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        and name not in inputs
    ]
    if (missing and workload != "generate") or not inputs:
        raise InputsError(
            f"cannot make inputs for {type(model).__name__}: its forward needs {', '.join(missing) or 'something'} "
            "and no rule makes that"
        )
    return inputs, sources


def _add_text(
    model: torch.nn.Module,
    parameters: Any,
    path: Path,
    trust: bool,
    generator: torch.Generator,
    media: Media,
    inputs: dict[str, torch.Tensor],
    sources: dict[str, str],
) -> None:
    text = TextIds(model.config, path, trust)
    ids, source = text.make(generator)
    image_tokens = media.image_token_ids(inputs)
    if image_tokens:
        block = torch.tensor(image_tokens).expand(BATCH, -1)
        ids = torch.cat([ids[:, :1], block, ids[:, 1:]], dim=1)
        marks = (ids == media.image_token_id).long()
        for name in ("mm_token_type_ids", "token_type_ids"):
            if name in parameters:
                inputs[name], sources[name] = marks, "configuration"
    inputs["input_ids"], sources["input_ids"] = ids, source
    if "attention_mask" in parameters:
        inputs["attention_mask"], sources["attention_mask"] = torch.ones_like(ids), source
    if "bbox" in parameters:
        corner = torch.randint(0, 500, (*ids.shape, 2), generator=generator)
        inputs["bbox"], sources["bbox"] = torch.cat([corner, corner + 100], dim=-1), "configuration"


def _decoder_ids(model: torch.nn.Module, generator: torch.Generator) -> torch.Tensor:
    """Starts with the decoder's start token, as a label that was shifted right does."""
    config = model.config
    decoder = getattr(config, "decoder", None) or config
    text = TextIds(decoder, None, False)
    ids = text.random(generator, min(SEQUENCE_LENGTH, position_limit(decoder)))
    start = find_number(config, "decoder_start_token_id", "bos_token_id", "pad_token_id")
    if start is not None and 0 <= start < text.vocabulary:
        ids[:, 0] = start
    return ids


def convert_floating(inputs: dict[str, torch.Tensor], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Floating leaves in `dtype`, integer leaves as they are."""
    return {name: value.to(dtype) if value.is_floating_point() else value for name, value in inputs.items()}
