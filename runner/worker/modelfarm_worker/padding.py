"""Padding: the second text of a batch is shorter, and what stands in its place must change nothing that is judged."""

import math
from collections.abc import Callable

import torch

from modelfarm_worker.call import Call

_MASK, _IDS = "attention_mask", "input_ids"
# By what share of the change at padded positions real ones may change: they are rounded with other tokens beside them.
_ROUNDING = 0.05

Tensors = dict[str, torch.Tensor]


def is_padded(call: Call) -> bool:
    """Whether the second text is shorter: where the model can be told so, and no sound beside it fixes its length."""
    return call.takes(_MASK) and not call.takes("num_delay_tokens")


def pads_left(call: Call, workload: str) -> bool:
    """A decoder goes on behind its last token, so that a shorter text begins later. All others end earlier."""
    return workload == "generate" and not getattr(call.config, "is_encoder_decoder", False)


def stack(rows: list[torch.Tensor], token: int, left: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of one length and their mask, 1 where there is text."""
    longest = max(len(row) for row in rows)
    ids = torch.full((len(rows), longest), token, dtype=torch.long)
    mask = torch.zeros((len(rows), longest), dtype=torch.long)
    for place, row in enumerate(rows):
        part = slice(longest - len(row), None) if left else slice(None, len(row))
        ids[place, part], mask[place, part] = row, 1
    return ids, mask


def padded_places(inputs: Tensors, shape: tuple[int, ...]) -> torch.Tensor | None:
    """Which of (batch, length) are padded, for something whose shape begins so; `None` where nothing is."""
    mask = inputs.get(_MASK)
    if mask is None or mask.dim() != 2 or tuple(mask.shape) != tuple(shape[:2]):
        return None
    return mask == 0


def report(inputs: Tensors, run: Callable[[Tensors], Tensors], outputs: Tensors) -> list[dict[str, object]]:
    """For each mask that leaves out something, the leaves of `outputs` whose padded positions only show the padding.

    It is seen, not guessed by names and lengths: the model runs again with other tokens in these places. A leaf that
    changes there and nowhere else is such a one. Where the real positions change too, the model does not mask, and
    every position is a result like any other.
    """
    found: list[dict[str, object]] = []
    for name, mask in inputs.items():
        ids_name = name.removesuffix(_MASK) + _IDS
        ids = inputs.get(ids_name)
        if name.split(".")[-1] != _MASK or ids is None or mask.dim() != 2 or ids.shape != mask.shape:
            continue
        if bool(mask.all()) or not bool(mask.any(dim=1).all()):
            continue
        try:
            others = run({**inputs, ids_name: _other_padding(ids, mask)})
        except Exception as error:
            # All positions are judged then.
            print(f"padding of {name} not told: {type(error).__name__}: {error}")
            continue
        leaves = [leaf for leaf, value in outputs.items() if leaf in others and _follows(value, others[leaf], mask)]
        found.append({"mask": name, "leaves": leaves})
    return found


def _other_padding(ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Ordinary tokens of each row's own text, from before the one that may end it."""
    others = ids.clone()
    for row, real in zip(others, mask.bool(), strict=True):
        text = row[real]
        row[~real] = text[-2] if len(text) > 1 else text[-1]
    return others


def _follows(value: torch.Tensor, other: torch.Tensor, mask: torch.Tensor) -> bool:
    if value.shape[:2] != mask.shape or value.shape != other.shape or value.numel() == 0:
        return False
    change = (value.double() - other.double()).abs().reshape(*mask.shape, -1).amax(dim=2)
    # What is no number in both runs has a difference that is none either.
    change = change.nan_to_num(nan=float("inf"), posinf=float("inf"))
    padded, real = change[mask == 0].max().item(), change[mask != 0].max().item()
    return padded > 0 and math.isfinite(real) and real <= _ROUNDING * padded
