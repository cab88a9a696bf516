"""Labels for a training step, where the model's forward takes any and their meaning follows from the class."""

from collections.abc import Mapping
from typing import Any

import torch

from modelfarm_worker.padding import padded_places

# What every loss of transformers leaves out.
_LEFT_OUT = -100


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
        mask = inputs.get("attention_mask")
        # Within the text of the shortest row.
        length = inputs["input_ids"].shape[1] if mask is None else int(mask.sum(dim=1).min())
        return {
            "start_positions": torch.randint(0, length, (batch,), generator=generator),
            "end_positions": torch.randint(0, length, (batch,), generator=generator),
        }
    if "labels" not in parameters:
        return {}
    if name.endswith(("ForSequenceClassification", "ForImageClassification", "ForAudioClassification")):
        return {"labels": torch.randint(0, classes, (batch,), generator=generator)}
    if name.endswith(("ForTokenClassification", "ForAudioFrameClassification")) and "input_ids" in inputs:
        labels = torch.randint(0, classes, tuple(inputs["input_ids"].shape), generator=generator)
        return {"labels": _without_padding(labels, inputs)}
    if name.endswith(("ForCausalLM", "ForMaskedLM", "LMHeadModel", "ForConditionalGeneration", "MTModel")):
        if "decoder_input_ids" in inputs:
            return {"labels": _without_image_tokens(model, inputs["decoder_input_ids"])}
        if "input_ids" in inputs:
            return {"labels": _without_padding(_without_image_tokens(model, inputs["input_ids"]), inputs)}
    return {}


def _without_padding(labels: torch.Tensor, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    padded = padded_places(inputs, tuple(labels.shape))
    return labels if padded is None or labels.dim() != 2 else labels.masked_fill(padded, _LEFT_OUT)


def _without_image_tokens(model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    for name in ("image_token_id", "image_token_index"):
        token = getattr(model.config, name, None)
        if isinstance(token, int):
            ids = torch.where(ids == token, _LEFT_OUT, ids)
    return ids.clone()
