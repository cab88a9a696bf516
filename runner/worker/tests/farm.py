"""The farm's side of the protocol, as far as the tests need it: a real zygote process over a real socket."""

import json
import os
import select
import socket
import subprocess
import sys
import time
from pathlib import Path

WORKER = Path(__file__).resolve().parents[1]


class Job:
    """The farm's ends of one job's channel and output pipe."""

    def __init__(self, number, channel, output):
        self.number = number
        self.channel = channel
        self.output = output
        self.events = []
        self._pending = b""

    def next_event(self, timeout=120):
        while b"\n" not in self._pending:
            ready, _, _ = select.select([self.channel], [], [], timeout)
            assert ready, f"no event within {timeout} s; so far {self.events}"
            data = self.channel.recv(1 << 16)
            if not data:
                return None
            self._pending += data
        line, self._pending = self._pending.split(b"\n", 1)
        event = json.loads(line)
        event["at"] = time.monotonic()
        self.events.append(event)
        return event

    def reply(self, message):
        self.channel.sendall(json.dumps(message).encode() + b"\n")

    def finish(self, timeout=120):
        """Reads all events up to the end of the channel, handing out a device when asked."""
        while (event := self.next_event(timeout)) is not None:
            if event["event"] == "need_device":
                self.reply({"device": {"env": {}}})
        return self.events

    def printed(self):
        data = b""
        while chunk := os.read(self.output, 1 << 16):
            data += chunk
        return data.decode("utf-8", "replace")

    def of(self, kind):
        return [event for event in self.events if event["event"] == kind]

    @property
    def facts(self):
        merged = {}
        for event in self.of("facts"):
            merged |= event["facts"]
        return merged


class Farm:
    """A zygote and its jobs."""

    def __init__(self, backend="cpu", environment=None, start=True, harnesses=()):
        self.control, theirs = socket.socketpair()
        self.pending = b""
        self.last_number = 0
        variables = {
            "PATH": os.environ["PATH"],
            "HOME": "/tmp",
            "PYTHONPATH": os.pathsep.join([str(WORKER), str(WORKER / "tests")]),
            "HF_HUB_OFFLINE": "1",
            "TPU_SKIP_MDS_QUERY": "1",
            **(environment or {}),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-m", "modelfarm_worker"], stdin=theirs, stderr=subprocess.PIPE, env=variables
        )
        theirs.close()
        self.ready = None
        if start:
            self.send({"type": "start", "protocol": 1, "backend": backend, "harnesses": list(harnesses)})
            self.ready = self.receive(timeout=600)
            assert self.ready["type"] == "ready", self.ready

    def send(self, message, descriptors=()):
        socket.send_fds(self.control, [json.dumps(message).encode() + b"\n"], list(descriptors))

    def receive(self, timeout=120):
        while b"\n" not in self.pending:
            ready, _, _ = select.select([self.control], [], [], timeout)
            assert ready, f"the zygote said nothing for {timeout} s"
            data = self.control.recv(1 << 16)
            assert data, "the zygote closed the control socket"
            self.pending += data
        line, self.pending = self.pending.split(b"\n", 1)
        return json.loads(line)

    def spawn(self, request):
        self.last_number += 1
        channel, theirs = socket.socketpair()
        output, output_theirs = os.pipe()
        self.send({"type": "spawn", "job": self.last_number, "request": request}, [theirs.fileno(), output_theirs])
        theirs.close()
        os.close(output_theirs)
        job = Job(self.last_number, channel, output)
        spawned = self.receive()
        assert spawned["type"] == "spawned", spawned
        assert spawned["job"] == job.number
        job.pid = spawned["pid"]
        return job

    def stop(self):
        self.send({"type": "stop"})
        return self.end()

    def end(self):
        """Closes the control socket; returns the exit code and what the zygote wrote to standard error."""
        self.control.close()
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors.decode("utf-8", "replace")
