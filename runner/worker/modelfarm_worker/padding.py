"""Padding: the second text of a batch is shorter, and what stands in its place must change nothing that is judged."""

from collections.abc import Callable

import torch

from modelfarm_worker.call import Call

_MASK, _IDS = "attention_mask", "input_ids"
# What else has a place for each token of the text.
_BESIDE_TEXT = (
    "bbox",
    "cross_attention_mask",
    "image_attention_mask",
    "image_embeds_position_mask",
    "mm_token_type_ids",
    "moe_mm_token_type_ids",
    "token_type_ids",
)

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
    """For each mask that leaves out something, the leaves of `outputs` that have a place for each of its positions.

    It is seen, not guessed by names and lengths: the model runs once more on a text that is one token shorter, and a
    leaf that is as long as the text becomes shorter with it. A picture's patches and a decoder's tokens do not, though
    there may be as many of them.
    """
    found: list[dict[str, object]] = []
    for name, mask in inputs.items():
        prefix = name.removesuffix(_MASK)
        ids = inputs.get(prefix + _IDS)
        if name.split(".")[-1] != _MASK or ids is None or mask.dim() != 2 or ids.shape != mask.shape:
            continue
        if bool(mask.all()) or not bool(mask.any(dim=1).all()):
            continue
        try:
            others = run({**inputs, **_shorter(inputs, prefix, mask)})
        except Exception as error:
            # All positions are judged then.
            print(f"padding of {name} not told: {type(error).__name__}: {error}")
            continue
        batch, length = mask.shape
        leaves = [
            leaf
            for leaf, value in outputs.items()
            if value.shape[:2] == (batch, length) and leaf in others and others[leaf].shape[:2] == (batch, length - 1)
        ]
        found.append({"mask": name, "leaves": leaves})
    return found


def _shorter(inputs: Tensors, prefix: str, mask: torch.Tensor) -> Tensors:
    """What belongs to a text without one column: padding of one row and ordinary text of the others. Their last token
    stays where that is possible, as some models look for the one that ends a text."""
    columns = (mask == 0).any(dim=0).nonzero().flatten().tolist()
    dropped = columns[-2] if len(columns) > 1 else columns[-1]
    kept = torch.tensor([column for column in range(mask.shape[1]) if column != dropped])
    names = [prefix + name for name in (_IDS, _MASK, *_BESIDE_TEXT)]
    return {
        name: inputs[name].index_select(1, kept)
        for name in names
        if name in inputs and inputs[name].shape[:2] == mask.shape
    }
