"""A case: one workload of one model in one mode on one device."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from modelfarm_worker import leaves
from modelfarm_worker.child import Reporter
from modelfarm_worker.compile_report import CompileReport
from modelfarm_worker.cpu_observer import CpuObserver
from modelfarm_worker.model import RequestError, load_model, parse_dtype
from modelfarm_worker.pjrt_statistics import read_pjrt_statistics
from modelfarm_worker.place import place
from modelfarm_worker.workloads import compile_model, make_workload

_EAGER_MODES = {
    "strict-eager": "DEFER_NEVER",
    "defer-and-fuse": "DEFER_AND_FUSE",
    "debug-eager": "DEFER_NEVER_AND_LAUNCH_BLOCKING",
}


def run_case(request: dict[str, Any], reporter: Reporter) -> None:
    """Does a request of kind `case`."""
    mode, device = request["mode"], request["device"]
    if mode != "compiled" and mode not in _EAGER_MODES:
        raise RequestError(f"unknown mode {mode!r}: expected compiled or one of {', '.join(_EAGER_MODES)}")
    reporter.stage("load")
    attention = None if request["attention"] == "default" else request["attention"]
    model = load_model(request["model"], parse_dtype(request["dtype"]), attention, request["seed"])
    host_inputs = leaves.read(Path(request["inputs_file"]))

    reporter.wait_device()
    reporter.stage("place")
    torch.set_float32_matmul_precision(request["precision"])
    untied = place(model, device)
    inputs = {name: value.to(device) for name, value in host_inputs.items()}
    reporter.facts(
        parameter_devices=leaves.devices(dict(model.named_parameters()) | dict(model.named_buffers())),
        input_devices=leaves.devices(inputs),
        untied_parameters=untied,
    )
    facts: dict[str, Any] = {}
    try:
        with _mode(device, mode, facts):
            results = _execute(request, model, inputs, reporter, facts)
    finally:
        # Also when it failed: the plugin often knows the cause that the framework hides.
        statistics = read_pjrt_statistics()
        if statistics is not None:
            facts["pjrt"] = statistics
        reporter.facts(**facts)
    reporter.device_done()
    reporter.done({"outputs": leaves.write(results, Path(request["out"]), "outputs")})


def _execute(
    request: dict[str, Any],
    model: torch.nn.Module,
    inputs: dict[str, torch.Tensor],
    reporter: Reporter,
    facts: dict[str, Any],
) -> dict[str, torch.Tensor]:
    """Runs the workload and reads its leaves back. What is observed goes to `facts`, also if this raises."""
    device_type = torch.device(request["device"]).type
    with contextlib.ExitStack() as stack:
        report = None
        if request["mode"] == "compiled":
            reporter.stage("compile")
            report = CompileReport(request["compile_backend"], device_type)
            stack.callback(lambda: facts.update(report.facts()))
            compile_model(model, request["workload"], report.backend)
            workload = make_workload(request["workload"], model, inputs)
            torch.manual_seed(request["seed"])
            workload.warm()
            report.forget_runs()
        else:
            workload = make_workload(request["workload"], model, inputs)
        reporter.stage("execute")
        torch.manual_seed(request["seed"])
        before = read_pjrt_statistics()
        with _observed(device_type, report, facts):
            outputs = workload.run()
        after = read_pjrt_statistics()
        facts["output_devices"] = leaves.devices(outputs)
        if before is not None and after is not None:
            counted = "device_to_host_count"
            facts["d2h_during_execute"] = after.get(counted, 0) - before.get(counted, 0)
        # An error of a deferred mode surfaces at this read, which is why it belongs to the stage.
        results = leaves.read_back(outputs)
        facts.update(workload.facts)
    return results


@contextlib.contextmanager
def _observed(device_type: str, report: CompileReport | None, facts: dict[str, Any]) -> Iterator[None]:
    """Watches for operators on the CPU: those that run between graphs as they run, those in graphs by the graphs."""
    if device_type == "cpu":
        yield
        return
    observer = CpuObserver()
    try:
        with observer:
            yield
    finally:
        in_graphs = report.operators_on_cpu if report is not None else set()
        facts["fallbacks"] = sorted(observer.operators | in_graphs)


@contextlib.contextmanager
def _mode(device: str, mode: str, facts: dict[str, Any]) -> Iterator[None]:
    """The backend's own switch for a mode. On the CPU all eager modes are the same."""
    if torch.device(device).type != "tpu":
        yield
        return
    from torch_tpu._internal import execution_mode

    # Off is its default; then an operator that it lacks is an error and not a silent trip to the CPU.
    execution_mode.enable_cpu_fallback = False
    eager_mode = _EAGER_MODES.get(mode)
    try:
        with (
            torch.tpu.set_eager_mode(getattr(torch.tpu.EagerMode, eager_mode))
            if eager_mode
            else contextlib.nullcontext()
        ):
            yield
    finally:
        if execution_mode.enable_cpu_fallback:
            facts["fallbacks"] = [*facts.get("fallbacks", ()), "any: the model switched TorchTPU's CPU fallback on"]
