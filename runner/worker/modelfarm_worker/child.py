"""A child: one job, from the fork to its exit."""

import contextlib
import ctypes
import faulthandler
import os
import resource
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from modelfarm_worker import PROTOCOL
from modelfarm_worker.channel import Channel, ProtocolError

MAX_MESSAGE_BYTES = 64 * 1024
MAX_TRACEBACK_BYTES = 256 * 1024
_PR_SET_DUMPABLE = 4


class Reporter:
    """What a job tells the farm while it runs: its stages and the facts that it observed."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._stage: str | None = None
        self._stage_began = time.monotonic()
        self.stage_ms: dict[str, float] = {}

    def stage(self, name: str) -> None:
        """Ends the stage that runs and begins `name`."""
        self.end_stage()
        self._stage = name
        self._channel.send({"event": "stage", "stage": name})
        self._stage_began = time.monotonic()

    def end_stage(self) -> None:
        if self._stage is not None:
            elapsed = (time.monotonic() - self._stage_began) * 1000
            self.stage_ms[self._stage] = round(self.stage_ms.get(self._stage, 0.0) + elapsed, 3)
        self._stage = None

    def wait_device(self) -> None:
        """Asks for a device slot, waits for it and takes over the environment that comes with it."""
        self.end_stage()
        self._channel.send({"event": "need_device"})
        reply = self._channel.wait_message()
        match reply:
            case {"device": {"env": dict(variables)}}:
                os.environ.update({str(name): str(value) for name, value in variables.items()})
            case _:
                raise ProtocolError(f"expected a device with its env, got {str(reply)[:200]}")

    def device_done(self) -> None:
        self._channel.send({"event": "device_done"})

    def facts(self, **facts: Any) -> None:
        self._channel.send({"event": "facts", "facts": facts})

    def done(self, files: dict[str, str]) -> None:
        self.end_stage()
        self.facts(stage_ms=self.stage_ms)
        self._channel.send({"event": "done", "files": files})

    def failed(self, error: BaseException) -> None:
        self.end_stage()
        with contextlib.suppress(Exception):
            self.facts(stage_ms=self.stage_ms)
        self._channel.send(describe_failure(error))


def run_child(channel_descriptor: int, output_descriptor: int, request: dict[str, Any]) -> None:
    """Runs one job in a freshly forked process and leaves the process. Never returns."""
    os.setsid()
    channel = Channel(socket.socket(fileno=channel_descriptor))
    channel.send({"event": "started"})
    isolate(channel.fileno(), output_descriptor)
    reporter = Reporter(channel)
    try:
        run_job(request, reporter)
    except BaseException as error:
        # SystemExit, KeyboardInterrupt and the like included: a model must not be able to end a job silently.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            reporter.failed(error)
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    # No interpreter or library teardown: it costs time, and a crash in it would look like the model's.
    os._exit(0)


def isolate(channel_descriptor: int, output_descriptor: int) -> None:
    """Leaves the process nothing of the zygote's but its memory."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(output_descriptor, 1)
    os.dup2(output_descriptor, 2)
    # Listed first and closed after: the listing itself is a descriptor.
    for descriptor in [int(name) for name in os.listdir("/proc/self/fd")]:  # noqa: PTH208
        if descriptor > 2 and descriptor != channel_descriptor:
            with contextlib.suppress(OSError):
                os.close(descriptor)
    os.set_inheritable(channel_descriptor, False)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
    faulthandler.enable(file=2, all_threads=False)


def run_job(request: dict[str, Any], reporter: Reporter) -> None:
    """Dispatches a request by its kind."""
    if request.get("protocol") != PROTOCOL:
        raise ProtocolError(f"expected a request of protocol {PROTOCOL}, got {request.get('protocol')!r}")
    import torch

    torch.set_num_threads(int(os.environ.get("MODELFARM_THREADS", "1")))
    Path(request["out"]).resolve(strict=True)
    match request.get("kind"):
        case "reference":
            from modelfarm_worker.reference import run_reference

            run_reference(request, reporter)
        case "case":
            from modelfarm_worker.execute import run_case

            run_case(request, reporter)
        case other:
            raise ProtocolError(f"expected kind reference or case, got {other!r}")


def describe_failure(error: BaseException) -> dict[str, Any]:
    """The `failed` event for an exception; whatever the exception's own methods do, it can be sent."""
    try:
        message = str(error)
    except BaseException as inner:
        message = f"<the exception's message could not be made: {type(inner).__name__}>"
    try:
        trace = "".join(traceback.format_exception(error))
    except BaseException as inner:
        trace = f"<the traceback could not be made: {type(inner).__name__}>"
    return {
        "event": "failed",
        "exception": qualified_name(type(error)),
        "bases": [qualified_name(base) for base in type(error).__mro__[1:] if base is not object],
        "message": bounded_text(message, MAX_MESSAGE_BYTES),
        "traceback": bounded_text(trace, MAX_TRACEBACK_BYTES),
    }


def qualified_name(kind: type) -> str:
    name = f"{kind.__module__}.{kind.__qualname__}"
    return bounded_text(name.removeprefix("builtins."), 1024)


def bounded_text(text: str, limit: int) -> str:
    """Valid UTF-8 of at most `limit` bytes; what is too long loses its middle, as both ends say most."""
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return data.decode("utf-8")
    mark = b"\n[... cut ...]\n"
    half = (limit - len(mark)) // 2
    return (data[:half].decode("utf-8", "ignore").encode() + mark).decode() + data[-half:].decode("utf-8", "ignore")
