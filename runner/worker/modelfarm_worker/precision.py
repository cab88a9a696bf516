"""The yardstick's arithmetic: float32 matmul and convolution as a matrix unit that multiplies bfloat16 does it.

`medium`: each operand is rounded to bfloat16, products are accumulated in float32.
`high`: each operand is the sum of two bfloat16 parts; of the four products the smallest (low x low) is left out.
`highest`: plain float32.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

_aten = torch.ops.aten


@contextlib.contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    """Runs what is inside on the CPU at a matmul precision."""
    if precision not in ("highest", "high", "medium"):
        raise ValueError(f"expected precision highest, high or medium, got {precision!r}")
    with contextlib.ExitStack() as stack:
        if precision != "highest":
            # Fused attention and fused recurrent layers would hide their products from the mode.
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
            stack.enter_context(_without_mkldnn())
            stack.enter_context(_RoundedOperands(parts=1 if precision == "medium" else 2))
        yield


@contextlib.contextmanager
def _without_mkldnn() -> Iterator[None]:
    # Not the library's own context manager: that also sets a switch which warns on every machine without a GPU.
    before = torch.backends.mkldnn.set_flags(False)[0]
    try:
        yield
    finally:
        torch.backends.mkldnn.set_flags(before)


def split_bfloat16(value: torch.Tensor, parts: int) -> list[torch.Tensor]:
    """`value` as a sum of `parts` float32 tensors that bfloat16 can hold exactly, largest first."""
    result = []
    rest = value
    for _ in range(parts):
        part = rest.to(torch.bfloat16).to(value.dtype)
        result.append(part)
        rest = rest - part
    return result


class _RoundedOperands(TorchDispatchMode):
    def __init__(self, parts: int) -> None:
        super().__init__()
        self._parts = parts

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        positions = _OPERANDS.get(func)
        if positions is None or args[positions[0]].dtype != torch.float32:
            return func(*args, **kwargs)
        left, right = positions[0], positions[1]
        if func in _CONVOLUTION_BACKWARD:
            return self._convolution_backward(func, args, kwargs)
        without_addend = _WITHOUT_ADDEND.get(func)
        if without_addend is not None:
            return self._with_addend(without_addend, args, kwargs)
        total = None
        for left_part, right_part in self._pairs(args[left], args[right]):
            replaced = list(args)
            replaced[left], replaced[right] = left_part, right_part
            if total is not None and func is _aten.convolution.default:
                replaced[2] = None  # the bias is added once
            product = func(*replaced, **kwargs)
            total = product if total is None else total + product
        return total

    def _pairs(self, left: torch.Tensor, right: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        lefts, rights = split_bfloat16(left, self._parts), split_bfloat16(right, self._parts)
        return [
            (left_part, right_part)
            for i, left_part in enumerate(lefts)
            for j, right_part in enumerate(rights)
            if i + j < self._parts
        ]

    def _with_addend(self, product: Callable, args: tuple, kwargs: dict) -> torch.Tensor:
        addend, left, right = args[:3]
        total = sum(product(*pair) for pair in self._pairs(left, right))
        beta, alpha = kwargs.get("beta", 1), kwargs.get("alpha", 1)
        if product is _aten.bmm.default and addend.dim() == 3 and args[0].shape != total.shape:
            addend = addend.expand_as(total)
        return (addend if beta == 1 else addend * beta) + (total if alpha == 1 else total * alpha)

    def _convolution_backward(self, func: Any, args: tuple, kwargs: dict) -> Any:
        gradient, value, weight, *rest = args
        gradients = split_bfloat16(gradient, self._parts)
        values = split_bfloat16(value, self._parts)
        weights = split_bfloat16(weight, self._parts)
        total: list[torch.Tensor | None] = [None, None, None]
        for i, gradient_part in enumerate(gradients):
            for j in range(self._parts - i):
                results = func(gradient_part, values[j], weights[j], *rest, **kwargs)
                for index in (0, 1):
                    if results[index] is not None:
                        known = total[index]
                        total[index] = results[index] if known is None else known + results[index]
        # The gradient of the bias is a sum, not a product: nothing of it is rounded.
        mask = kwargs.get("output_mask", args[-1])
        if mask[2]:
            total[2] = gradient.sum(dim=[0, *range(2, gradient.dim())])
        return tuple(total)


_CONVOLUTION_BACKWARD = {_aten.convolution_backward.default}
_WITHOUT_ADDEND = {
    _aten.addmm.default: _aten.mm.default,
    _aten.baddbmm.default: _aten.bmm.default,
    _aten.addmv.default: _aten.mv.default,
}
# Where the two operands of the product stand among an operator's arguments.
_OPERANDS: dict[Any, tuple[int, int]] = {
    _aten.mm.default: (0, 1),
    _aten.bmm.default: (0, 1),
    _aten.mv.default: (0, 1),
    _aten.dot.default: (0, 1),
    _aten.linear.default: (0, 1),
    _aten.addmm.default: (1, 2),
    _aten.baddbmm.default: (1, 2),
    _aten.addmv.default: (1, 2),
    _aten.convolution.default: (0, 1),
    _aten.convolution_backward.default: (0, 1),
}
if hasattr(_aten, "_grouped_mm"):
    _OPERANDS[_aten._grouped_mm.default] = (0, 1)
