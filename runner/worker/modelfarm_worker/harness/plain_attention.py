"""Attention as two matmuls and a softmax, for libraries that call PyTorch's fused one and know no `eager` of their own.

The yardstick can round plain products, float64 can compute them, and a device without the fused kernel can run them.
"""

import math

import torch

from modelfarm_worker.model import RequestError


def choose_attention(attention: str | None) -> None:
    """Makes this process run the attention that a request names. A process does one job, so nothing is undone."""
    if attention == "eager":
        torch.nn.functional.scaled_dot_product_attention = plain_attention
        torch.backends.mha.set_fastpath_enabled(False)
    elif attention not in (None, "sdpa"):
        raise RequestError(f"unknown attention {attention!r} for this harness: expected eager, sdpa or default")


def plain_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """`torch.nn.functional.scaled_dot_product_attention` by its definition. A row that may see nothing is zero."""
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], dim=-3)
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], dim=-3)
    scores = (query @ key.transpose(-2, -1)) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if attn_mask is None:
        weights = scores.softmax(dim=-1)
    elif attn_mask.dtype == torch.bool:
        weights = scores.masked_fill(attn_mask.logical_not(), float("-inf")).softmax(dim=-1)
        weights = weights.masked_fill(attn_mask.any(dim=-1, keepdim=True).logical_not(), 0.0)
    else:
        weights = (scores + attn_mask).softmax(dim=-1)
    if dropout_p > 0.0:
        weights = torch.nn.functional.dropout(weights, dropout_p)
    return weights @ value
