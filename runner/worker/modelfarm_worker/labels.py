"""Labels for a training step, where the model's forward takes any and their meaning follows from the class."""

from collections.abc import Mapping
from typing import Any

import torch


def make_labels(
    model: torch.nn.Module,
    parameters: Mapping[str, Any],
    inputs: dict[str, torch.Tensor],
    generator: torch.Generator,
) -> dict[str, torch.Tensor]:
    """Labels by argument name; empty where the class has none that are known."""
    name = type(model).__name__
    batch = next(iter(inputs.values())).shape[0]
    classes = int(getattr(model.config, "num_labels", None) or 2)
    if {"start_positions", "end_positions"} <= parameters.keys() and "input_ids" in inputs:
        length = inputs["input_ids"].shape[1]
        return {
            "start_positions": torch.randint(0, length, (batch,), generator=generator),
            "end_positions": torch.randint(0, length, (batch,), generator=generator),
        }
    if "labels" not in parameters:
        return {}
    if name.endswith(("ForSequenceClassification", "ForImageClassification", "ForAudioClassification")):
        return {"labels": torch.randint(0, classes, (batch,), generator=generator)}
    if name.endswith(("ForTokenClassification", "ForAudioFrameClassification")) and "input_ids" in inputs:
        return {"labels": torch.randint(0, classes, tuple(inputs["input_ids"].shape), generator=generator)}
    if name.endswith(("ForCausalLM", "ForMaskedLM", "LMHeadModel", "ForConditionalGeneration", "MTModel")):
        ids = inputs.get("decoder_input_ids", inputs.get("input_ids"))
        if ids is not None:
            return {"labels": _without_image_tokens(model, ids)}
    return {}


def _without_image_tokens(model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    """-100 is what every loss of transformers leaves out."""
    for name in ("image_token_id", "image_token_index"):
        token = getattr(model.config, name, None)
        if isinstance(token, int):
            ids = torch.where(ids == token, -100, ids)
    return ids.clone()
