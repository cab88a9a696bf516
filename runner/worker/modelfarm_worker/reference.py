"""A reference: the inputs, the outputs in float64, the same once more, and the yardstick."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from modelfarm_worker import leaves, padding
from modelfarm_worker.child import Reporter
from modelfarm_worker.harness import make_inputs
from modelfarm_worker.inputs import convert_floating
from modelfarm_worker.model import load_reference_model, parse_dtype
from modelfarm_worker.precision import matmul_precision
from modelfarm_worker.workloads import make_workload

_REDUCED = {torch.float32, torch.bfloat16, torch.float16}


def run_reference(request: dict[str, Any], reporter: Reporter) -> None:
    """Does a request of kind `reference`."""
    out, seed = Path(request["out"]), request["seed"]
    dtype = parse_dtype(request["dtype"])
    reporter.stage("load")
    model = load_reference_model(request["model"], dtype, request.get("attention"), seed)
    made, sources = make_inputs(model, request["model"], request["workload"], request["inputs"], seed)
    inputs = convert_floating(made, dtype)
    files = {"inputs": leaves.write(leaves.read_back(inputs), out, "inputs")}

    reporter.stage("reference")
    reporter.facts(
        input_sources=sources,
        reference_attention=_attention(model, request),
        parameter_count=sum(value.numel() for value in model.parameters()),
    )

    def run(target: torch.nn.Module, values: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        torch.manual_seed(seed)
        return leaves.read_back(make_workload(request["workload"], target, values).run())

    changes_parameters = request["workload"] == "train-step"
    with matmul_precision(request["precision"] if dtype == torch.float32 else "highest"):
        yardstick = run(copy.deepcopy(model) if changes_parameters else model, inputs)
        if request["workload"] == "forward":
            # Other workloads have no leaves with a place for each token of the inputs.
            reporter.facts(padding=padding.report(inputs, lambda values: run(model, values), yardstick))
    files["yardstick"] = leaves.write(yardstick, out, "yardstick")
    del yardstick

    reference, repeat, reference_dtype = _reference(model, inputs, dtype, run, changes_parameters)
    files["reference"] = leaves.write(reference, out, "reference")
    files["repeat"] = leaves.write(repeat, out, "repeat")
    reporter.facts(reference_dtype=reference_dtype)
    reporter.done(files)


Run = Callable[[torch.nn.Module, dict[str, torch.Tensor]], dict[str, torch.Tensor]]


def _reference(
    model: torch.nn.Module,
    inputs: dict[str, torch.Tensor],
    dtype: torch.dtype,
    run: Run,
    changes_parameters: bool,
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], str]:
    """Reference, repeat and the dtype of both. The values in `model` are exact in every wider dtype."""

    def twice() -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        first = run(copy.deepcopy(model) if changes_parameters else model, inputs)
        return _widened(first), _widened(run(model, inputs))

    if dtype == torch.float64 or _fits_in_memory(model):
        kept = copy.deepcopy(model) if changes_parameters else model
        try:
            model.double()
            inputs = convert_floating(inputs, torch.float64)
            with float64_throughout():
                return *twice(), "float64"
        except Exception as error:
            print(f"no float64 reference: {type(error).__name__}: {error}")
            model = kept
    model.float()
    inputs = convert_floating(inputs, torch.float32)
    return *twice(), "float32"


def _attention(model: torch.nn.Module, request: dict[str, Any]) -> str | None:
    """What the model says that it runs. Models of other harnesses do not say, and run what they were told."""
    if request["model"]["harness"] == "transformers":
        return getattr(model.config, "_attn_implementation", None)
    return request.get("attention") or "eager"


def _widened(values: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Half-precision leaves as float32: reference leaves are float64 or float32."""
    return {
        name: value.float() if value.dtype in (torch.bfloat16, torch.float16) else value
        for name, value in values.items()
    }


def _fits_in_memory(model: torch.nn.Module) -> bool:
    """Whether the weights in float64, with as much again to work in, fit in what the system has to give."""
    needed = 2 * 8 * sum(value.numel() for value in model.parameters())
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return needed < int(line.split()[1]) * 1024
    return True


class float64_throughout(TorchFunctionMode):
    """Computes in float64 also where a model's code asks for float32, as most do in softmax and normalisation."""

    def __enter__(self) -> Any:
        self._default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        return super().__enter__()

    def __exit__(self, *details: Any) -> None:
        torch.set_default_dtype(self._default)
        return super().__exit__(*details)

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func in _NARROWING:
            return args[0].double()
        kwargs = {name: _promoted(value) for name, value in (kwargs or {}).items()}
        return func(*(_promoted(value) for value in args), **kwargs)


_NARROWING = {torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16}


def _promoted(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value in _REDUCED else value
