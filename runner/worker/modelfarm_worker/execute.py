"""A case: one workload of one model in one mode on one device."""

import contextlib
from pathlib import Path
from typing import Any

import torch

from modelfarm_worker import leaves
from modelfarm_worker.child import Reporter
from modelfarm_worker.compile_report import CompileReport
from modelfarm_worker.model import RequestError, load_model, parse_dtype
from modelfarm_worker.pjrt_statistics import read_pjrt_statistics
from modelfarm_worker.workloads import make_workload

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
    model = load_model(request["model"], parse_dtype(request["dtype"]), request["attention"], request["seed"])
    host_inputs = leaves.read(Path(request["inputs_file"]))

    reporter.wait_device()
    reporter.stage("place")
    torch.set_float32_matmul_precision(request["precision"])
    model.to(device)
    inputs = {name: value.to(device) for name, value in host_inputs.items()}
    reporter.facts(
        parameter_devices=leaves.devices(dict(model.named_parameters()) | dict(model.named_buffers())),
        input_devices=leaves.devices(inputs),
    )
    with _mode(device, mode):
        results, facts = _execute(request, model, inputs, reporter)
    reporter.device_done()
    files = {"outputs": leaves.write(results, Path(request["out"]), "outputs")}
    reporter.facts(**facts)
    reporter.done(files)


def _execute(
    request: dict[str, Any], model: torch.nn.Module, inputs: dict[str, torch.Tensor], reporter: Reporter
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Runs the workload and reads its leaves back; with them come the facts."""
    report = None
    call: Any = model
    if request["mode"] == "compiled":
        reporter.stage("compile")
        report = CompileReport(request["compile_backend"], torch.device(request["device"]).type)
        # The bound method, so that both a direct call and generate() go through the compiled form.
        model.forward = torch.compile(model.forward, backend=report.backend, dynamic=False)
        workload = make_workload(request["workload"], model, inputs, call)
        torch.manual_seed(request["seed"])
        workload.warm()
    else:
        workload = make_workload(request["workload"], model, inputs, call)
    reporter.stage("execute")
    torch.manual_seed(request["seed"])
    before = read_pjrt_statistics()
    outputs = workload.run()
    after = read_pjrt_statistics()
    facts: dict[str, Any] = {"output_devices": leaves.devices(outputs)}
    # An error of a deferred mode surfaces at this read, which is why it belongs to the stage.
    results = leaves.read_back(outputs)
    facts |= workload.facts
    if report is not None:
        facts |= report.facts()
    if before is not None and after is not None:
        facts["pjrt"] = read_pjrt_statistics()
        if "d2h_count" in before and "d2h_count" in after:
            facts["d2h_during_execute"] = after["d2h_count"] - before["d2h_count"]
    return results, facts


def _mode(device: str, mode: str) -> contextlib.AbstractContextManager:
    """The backend's own switch for a mode. On the CPU all eager modes are the same."""
    if torch.device(device).type != "tpu" or mode == "compiled":
        return contextlib.nullcontext()
    return torch.tpu.set_eager_mode(getattr(torch.tpu.EagerMode, _EAGER_MODES[mode]))
