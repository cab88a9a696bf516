"""Sees operators that compute on the CPU while a model is meant to run on a device."""

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# These move or make tensors; the host does that in any program.
_MOVES = {
    "_to_copy",
    "_local_scalar_dense",
    "_pin_memory",
    "_reshape_alias",
    "_unsafe_view",
    "alias",
    "clone",
    "copy_",
    "detach",
    "lift_fresh",
    "lift_fresh_copy",
}


class CpuObserver(TorchDispatchMode):
    """Collects the names of operators that took floating tensors of more than one element in host memory."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: set[str] = set()

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Compiled code runs as it would without this mode; what a model does between its graphs is seen."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        for value in _tensors(args):
            if counts_as_computing(value) and not func.is_view and func._schema.name[6:] not in _MOVES:
                self.operators.add(str(func))
                break
        return func(*args, **(kwargs or {}))


def counts_as_computing(value: Any) -> bool:
    """Whether a tensor is one whose arithmetic belongs on the device."""
    return (
        isinstance(value, torch.Tensor)
        and value.device.type == "cpu"
        and value.is_floating_point()
        and value.numel() > 1
    )


def _tensors(args: tuple) -> Iterator[torch.Tensor]:
    for value in args:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from (item for item in value if isinstance(item, torch.Tensor))


def operators_on_cpu(graph: torch.fx.Graph) -> set[str]:
    """The same for a captured graph: its calls whose arguments are floating tensors in host memory."""
    found = set()
    for node in graph.nodes:
        if not node.op.startswith("call_"):
            continue
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
        inputs = (argument.meta.get("example_value") for argument in node.all_input_nodes)
        if name not in _GRAPH_MOVES and any(counts_as_computing(value) for value in inputs):
            found.add(str(name))
    return found


_GRAPH_MOVES = _MOVES | {"to", "cpu", "contiguous", "getitem", "getattr", "view", "reshape", "size", "type", "float"}
