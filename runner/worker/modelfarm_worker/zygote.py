"""The zygote: imports the heavy libraries once, then forks a child for each job, reaps it and kills it when told to.

It never creates a device client and never runs a model: whatever a model does, it does in a child.
"""

import contextlib
import ctypes
import gc
import os
import select
import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from modelfarm_worker import PROTOCOL
from modelfarm_worker.channel import Channel, ChannelEnded, ProtocolError
from modelfarm_worker.child import run_child

EXIT_PROTOCOL = 2
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Job:
    number: int
    pid: int


class Zygote:
    """The state of one zygote: its control socket and its living children by process id."""

    def __init__(self, control: Channel) -> None:
        self.control = control
        self.jobs: dict[int, Job] = {}
        self.wakeup_read, self.wakeup_write = os.pipe()
        os.set_blocking(self.wakeup_read, False)
        os.set_blocking(self.wakeup_write, False)

    def run(self) -> None:
        """Serves messages until `stop` or the end of the control socket."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self.wakeup_write, warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(self.control.fileno(), select.POLLIN)
        poll.register(self.wakeup_read, select.POLLIN)
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == self.wakeup_read:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self.wakeup_read, 4096)
                    self.reap()
                else:
                    self.control.read_available()
            while (message := self.control.next_message()) is not None:
                if not self.handle(message):
                    return
            if self.control.ended:
                return

    def handle(self, message: dict[str, Any]) -> bool:
        """Does what a message asks. False when it asks to stop."""
        match message:
            case {"type": "spawn", "job": int(number), "request": dict(request)}:
                self.spawn(number, request)
            case {"type": "kill", "job": int(number)}:
                for job in self.jobs.values():
                    if job.number == number:
                        kill_group(job.pid)
            case {"type": "stop"}:
                return False
            case _:
                raise ProtocolError(f"expected spawn, kill or stop, got {str(message)[:200]}")
        return True

    def spawn(self, number: int, request: dict[str, Any]) -> None:
        channel, output = self.control.take_descriptors(2)
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            # Nothing of the child may run on into the parent's loop, whatever is raised.
            try:
                run_child(channel, output, request)
            finally:
                os._exit(70)
        os.close(channel)
        os.close(output)
        self.jobs[pid] = Job(number, pid)
        self.control.send({"type": "spawned", "job": number, "pid": pid})

    def reap(self) -> None:
        """Reaps every child that ended, after its whole process group was killed."""
        while True:
            try:
                # WNOWAIT: as long as the leader is not reaped, its number cannot become another group's.
                info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if info is None:
                return
            kill_group(info.si_pid)
            _, status, usage = os.wait4(info.si_pid, 0)
            job = self.jobs.pop(info.si_pid, None)
            if job is None:
                continue  # an orphan of a job
            self.kill_orphans()
            signalled = os.WIFSIGNALED(status)
            self.control.send(
                {
                    "type": "exited",
                    "job": job.number,
                    "code": None if signalled else os.WEXITSTATUS(status),
                    "signal": os.WTERMSIG(status) if signalled else None,
                    "max_rss_bytes": usage.ru_maxrss * 1024,
                }
            )

    def kill_orphans(self) -> None:
        """Kills processes that left the group of a job which has ended: they were handed to this process."""
        for pid in own_children():
            if pid not in self.jobs:
                kill_group(pid)

    def kill_all(self) -> None:
        for pid in list(self.jobs):
            kill_group(pid)
        for pid in list(self.jobs):
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        self.jobs.clear()
        self.kill_orphans()


def kill_group(pid: int) -> None:
    """SIGKILL to a process and to the group that it leads."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    # A child that was killed before its first instruction leads no group yet.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def own_children() -> list[int]:
    """Process ids of this process's children, or none where the kernel does not tell."""
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    except OSError:
        return []


def serve() -> int:
    """The whole life of a zygote. Returns its exit code."""
    protocol_descriptor = os.dup(0)
    os.set_inheritable(protocol_descriptor, False)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    process_control = ctypes.CDLL(None).prctl
    process_control(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # A job may not look into the zygote to reach the control socket.
    process_control(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    try:
        control = Channel(socket.socket(fileno=protocol_descriptor))
    except OSError as error:
        print(
            f"modelfarm_worker: expected the control socket as file descriptor 0 ({error}); "
            "the farm starts this program, it is not meant to be run by hand",
            file=sys.stderr,
        )
        return EXIT_PROTOCOL
    zygote = Zygote(control)
    try:
        start(control)
        zygote.run()
    except ProtocolError as error:
        print(f"modelfarm_worker: failed to follow the control socket: {error}", file=sys.stderr)
        return EXIT_PROTOCOL
    except (ChannelEnded, BrokenPipeError, ConnectionResetError):
        return 0  # the farm is gone
    finally:
        zygote.kill_all()
    return 0


def start(control: Channel) -> None:
    """Answers the first line, which says what to import."""
    message = control.wait_message()
    if message.get("type") != "start" or message.get("backend") not in ("torchtpu", "cpu"):
        raise ProtocolError(f"expected start with backend torchtpu or cpu, got {str(message)[:200]}")
    if message.get("protocol") != PROTOCOL:
        raise ProtocolError(f"expected protocol {PROTOCOL}, got {message.get('protocol')!r}: update the older side")
    began = time.monotonic()
    from modelfarm_worker.prewarm import package_versions, prewarm

    preload, harnesses = ([str(name) for name in message.get(key) or ()] for key in ("preload", "harnesses"))
    prewarm(message["backend"], preload, harnesses)
    gc.collect()
    gc.freeze()  # a collection in a child must not write to, and so copy, what it shares with its parent
    control.send(
        {
            "type": "ready",
            "protocol": PROTOCOL,
            "packages": package_versions(),
            "import_ms": round((time.monotonic() - began) * 1000),
        }
    )
