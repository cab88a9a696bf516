"""What torch.compile did: graphs that ran on the device, graph breaks with their reasons, recompilations."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch

from modelfarm_worker.cpu_observer import operators_on_cpu

_MAX_REASON_CHARACTERS = 500


class CompileReport:
    """Counts the graphs that one backend compiled, and which of them ran, for one device type."""

    def __init__(self, backend: str, device_type: str) -> None:
        self._backend = torch._dynamo.lookup_backend(backend)
        self._device_type = device_type
        self._ran: set[int] = set()
        self._compiled = 0
        self.operators_on_cpu: set[str] = set()
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        torch._dynamo.utils.clear_compilation_metrics()

        def counted(graph: torch.fx.GraphModule, example_inputs: list[Any], **options: Any) -> Callable:
            return self._compile(graph, example_inputs, **options)

        # A Dynamo backend: the real one, with a note of each graph's first run. It is a function and not a method
        # because transformers copies configurations deeply, and with a method would copy this object.
        counted.__name__ = backend  # errors name it
        self.backend = counted

    def _compile(self, graph: torch.fx.GraphModule, example_inputs: list[Any], **options: Any) -> Callable:
        if self._device_type != "cpu":
            self.operators_on_cpu |= operators_on_cpu(graph.graph)
        compiled = self._backend(graph, example_inputs, **options)
        number = self._compiled
        self._compiled += 1
        computes = any(node.op.startswith("call_") for node in graph.graph.nodes)
        on_device = any(
            isinstance(value, torch.Tensor) and value.device.type == self._device_type for value in example_inputs
        )

        def run(*arguments: Any) -> Any:
            if computes and on_device:
                self._ran.add(number)
            return compiled(*arguments)

        return run

    def forget_runs(self) -> None:
        """Counts from here on: what ran before was to compile."""
        self._ran.clear()

    def facts(self) -> dict[str, Any]:
        breaks: Counter[str] = Counter()
        for reason, count in torch._dynamo.utils.counters["graph_break"].items():
            breaks[_short(reason)] += count
        recompilations = [
            _short(metrics.recompile_reason)
            for metrics in torch._dynamo.utils.get_compilation_metrics()
            if metrics.recompile_reason
        ]
        return {
            "graph_count": len(self._ran),
            "graph_breaks": [{"reason": reason, "count": count} for reason, count in breaks.most_common()],
            "recompile_count": len(recompilations),
            "recompile_reasons": sorted(set(recompilations))[:50],
        }


def _short(reason: str) -> str:
    """Without the user's stack, which differs from machine to machine, and without where to read more."""
    text = str(reason).split("User stack trace", 1)[0].split("For more details", 1)[0]
    return text.strip()[:_MAX_REASON_CHARACTERS]
