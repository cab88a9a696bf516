"""The zygote and its children as processes: what they survive, and what they keep apart."""

import os
import signal
import time
from pathlib import Path

import pytest
from farm import Farm


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # gone before it was opened, or while it was read
        return False


def wait_dead(pid):
    deadline = time.monotonic() + 10
    while is_alive(pid):
        assert time.monotonic() < deadline, f"process {pid} still lives"
        time.sleep(0.02)


def children_of(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_stage(job, stage):
    while (event := job.next_event()) != "end":
        if event["event"] == "need_device":
            job.reply({"device": {"env": {"MODELFARM_TEST": "1"}}})
        if event["event"] == "stage" and event["stage"] == stage:
            return


def test_ready_names_the_packages(farm):
    assert farm.ready["protocol"] == 1
    assert farm.ready["packages"]["torch"].startswith("2.")
    assert farm.ready["import_ms"] > 0


def test_exception_of_a_model_is_reported_with_its_bases_and_bounded(run, toy):
    job = run.case(toy("raises"), run.toy_inputs())
    (failed,) = job.of("failed")
    assert failed["exception"] == "KeyError"
    assert failed["bases"][:2] == ["LookupError", "Exception"]
    assert "no such thing" in failed["message"]
    assert len(failed["message"].encode()) <= 64 * 1024
    assert "modeling_toy.py" in failed["traceback"]
    assert len(failed["traceback"].encode()) <= 256 * 1024
    assert job.exited["code"] == 0
    assert [event["stage"] for event in job.of("stage")] == ["load", "place", "execute"]
    assert job.events[0]["event"] == "started"
    assert not job.of("done")


@pytest.mark.parametrize(("behaviour", "exception"), [("leaves", "SystemExit"), ("recurses", "RecursionError")])
def test_a_model_cannot_end_a_job_silently(run, toy, behaviour, exception):
    job = run.case(toy(behaviour), run.toy_inputs())
    assert [event["exception"] for event in job.of("failed")] == [exception]


def test_crash_leaves_a_python_stack(run, toy):
    job = run.case(toy("crashes"), run.toy_inputs())
    assert job.exited["signal"] == signal.SIGSEGV
    assert job.exited["code"] is None
    assert job.exited["max_rss_bytes"] > 100_000_000
    assert job.of("stage")[-1]["stage"] == "execute"
    printed = job.printed()
    assert "Segmentation fault" in printed
    assert "in crashes" in printed


def test_kill_ends_the_group_and_what_left_it(farm, run, toy):
    job = farm.spawn(run.case_request(toy("hangs"), run.toy_inputs()))
    wait_stage(job, "execute")
    printed = b""
    while b"\n" not in printed:
        printed += os.read(job.output, 4096)
    escaped = int(printed.split()[1])
    descendants = children_of(job.pid)
    assert len(descendants) == 2
    assert escaped in descendants
    farm.send({"type": "kill", "job": job.number})
    assert farm.receive()["signal"] == signal.SIGKILL
    for pid in descendants:
        wait_dead(pid)


def test_child_has_nothing_but_its_channel(run, toy):
    job = run.case(toy("looks_around"), run.toy_inputs())
    assert job.of("done"), job.events
    seen = dict(line.split()[1:3] for line in job.printed().splitlines() if line.startswith("descriptor"))
    assert seen["0"] == "/dev/null"
    assert seen["1"] == seen["2"]
    assert seen["1"].startswith("pipe:")
    others = [target for name, target in seen.items() if int(name) > 2]
    assert len(others) == 1, seen  # the listing's own descriptor is gone when it is read
    assert others[0].startswith("socket:")
    control = Path(f"/proc/{run.farm.process.pid}/fd/0")
    assert others[0] != str(control.readlink())


def test_child_is_a_session_of_its_own(run, toy):
    assert "session True" in run.case(toy("looks_around"), run.toy_inputs()).printed()


def test_untrusted_code_is_not_run(run, toy):
    job = run.case(toy("plain", trusted=False), run.toy_inputs())
    (failed,) = job.of("failed")
    assert failed["exception"].endswith("UntrustedCodeError")
    assert job.of("stage")[-1]["stage"] == "load"


def test_wrong_protocol_of_a_request(run, toy):
    request = run.case_request(toy("plain"), run.toy_inputs())
    job = run.finish({**request, "protocol": 2})
    (failed,) = job.of("failed")
    assert "expected a request of protocol 1, got 2" in failed["message"]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (b"GET / HTTP/1.1\r\n", "expected a JSON object on a line"),
        (b"[1, 2]\n", "expected a JSON object on a line"),
        (b"\xff\xfe\n", "expected a JSON object on a line"),
        (b'{"type":"start","protocol":2,"backend":"cpu"}\n', "expected protocol 1, got 2"),
        (b'{"type":"start","protocol":1,"backend":"gpu"}\n', "expected start with backend"),
        (b'{"type":"sta', "ended inside a line"),
    ],
)
def test_garbage_on_the_control_socket(line, complaint):
    farm = Farm(start=False)
    farm.control.sendall(line)
    code, errors = farm.end()
    assert code == 2
    assert complaint in errors


def test_end_of_file_before_the_start_is_no_error():
    assert Farm(start=False).end() == (0, "")


def test_garbage_after_the_start_kills_the_children(toy, tmp_path, run):
    farm = Farm(environment={"HOME": str(tmp_path)})
    job = farm.spawn(run.case_request(toy("hangs"), run.toy_inputs()))
    wait_stage(job, "execute")
    farm.send({"type": "spawn", "job": 99, "request": {}})
    code, errors = farm.end()
    assert code == 2
    assert "expected 2 file descriptors with the message, got 0" in errors
    wait_dead(job.pid)
