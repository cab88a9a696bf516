"""Tiny models and operators through TorchTPU on the emulated device, in three modes, compared with the CPU.

Started by python_environment.rs, or by hand: MODELFARM_TEST_LIBRARY names the interposer's file, PYTHONPATH the folder
with modelfarm_rewriter, and MODELFARM_PJRT_PLUGIN the CPU plugin (default: the one of fastatomstruct-xla-cpu).
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

TOLERANCE = 1e-6
LIBRARY = os.environ["MODELFARM_TEST_LIBRARY"]
MODES = ("strict-eager", "defer-and-fuse", "compiled")


def cpu_plugin() -> str:
    """The file of the CPU plugin."""
    if given := os.environ.get("MODELFARM_PJRT_PLUGIN"):
        return given
    package = importlib.util.find_spec("fastatomstruct_xla_cpu")
    if package is None or package.origin is None:
        sys.exit("fastatomstruct-xla-cpu is not installed: set MODELFARM_PJRT_PLUGIN to a CPU plugin's file")
    return str(Path(package.origin).parent / "libpjrt_cpu.so")


@contextmanager
def rewriter(folder: Path) -> Iterator[Path]:
    """A rewriter that serves a socket."""
    socket = folder / "rewriter.sock"
    process = subprocess.Popen(
        [sys.executable, "-m", "modelfarm_rewriter", "--socket", str(socket)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        assert ready == f"ready {socket}\n", f"the rewriter said {ready!r}"
        yield socket
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0, "the rewriter did not end well"
        assert not socket.exists(), "the rewriter left its socket behind"


def start(folder: Path, socket: Path) -> None:
    """Sets the environment and starts TorchTPU on the interposer."""
    os.environ.update(
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
        TPU_SKIP_MDS_QUERY="1",
        TPU_LIBRARY_PATH=LIBRARY,
        MODELFARM_PJRT_PLUGIN=cpu_plugin(),
        MODELFARM_PJRT_REWRITER=str(socket),
        TORCHINDUCTOR_CACHE_DIR=str(folder / "inductor"),
        XLA_FLAGS="--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true",
    )
    warnings.filterwarnings("ignore")
    import torch  # noqa: F401
    import torch_tpu

    torch_tpu._loader._init_device("tpu")


def statistics() -> dict[str, Any]:
    """The interposer's counters."""
    function = ctypes.CDLL(LIBRARY).modelfarm_pjrt_statistics_json
    function.restype = ctypes.c_size_t
    function.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    buffer = ctypes.create_string_buffer(function(None, 0) + 1)
    assert function(buffer, len(buffer)) == len(buffer) - 1
    return json.loads(buffer.value)


def on_device(function: Callable[..., Any], arguments: tuple[Any, ...], mode: str) -> Any:
    """Calls a function with its arguments on the device, in a mode."""
    import torch

    modes = {"strict-eager": torch.tpu.EagerMode.DEFER_NEVER, "defer-and-fuse": torch.tpu.EagerMode.DEFER_AND_FUSE}
    placed = [argument.to("tpu") for argument in arguments]
    torch._dynamo.reset()
    if mode == "compiled":
        function = torch.compile(function, backend="tpu")
    with torch.tpu.set_eager_mode(modes[mode]) if mode in modes else nullcontext():
        return function(*placed)


def difference(actual: Any, expected: Any) -> float:
    """The largest difference, relative to the largest expected magnitude."""
    expected = expected.detach().double()
    distance = (actual.detach().cpu().double() - expected).abs().max() / expected.abs().max().clamp_min(1e-12)
    return distance.item()


def check(name: str, mode: str, distance: float, tolerance: float = TOLERANCE) -> None:
    """Reports and judges one comparison."""
    print(f"{name:24} {mode:16} {distance:.1e}", flush=True)
    assert distance <= tolerance, f"{name} in {mode}: difference {distance:.2e}, expected at most {tolerance:.0e}"


def operators() -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    """Operators whose programs hold composites that XLA:CPU refuses or aborts on, small and large."""
    import torch
    from torch.nn.functional import embedding_bag

    torch.manual_seed(0)
    for size in (8, 301, 70_000):
        yield f"cumsum {size}", lambda a: a.cumsum(0), (torch.rand(size),)
        yield f"cumprod {size}", lambda a: a.cumprod(0), (torch.full((size,), 1.0),)
        yield f"logcumsumexp {size}", lambda a: a.logcumsumexp(0), (torch.rand(size).double(),)
    bags = (torch.rand(50, 16), torch.randint(0, 50, (400,)), torch.tensor([0, 7, 300]))
    yield "embedding_bag", lambda w, i, o: embedding_bag(i, w, o, mode="sum"), bags
    groups = torch.tensor([16, 20, 50, 64], dtype=torch.int32)
    grouped = (torch.rand(64, 32), torch.rand(4, 32, 48), groups)
    yield "grouped_mm", lambda a, b, o: torch._grouped_mm(a, b, offs=o), grouped


def models() -> Iterator[tuple[str, Any]]:
    """Tiny language models."""
    import torch
    from transformers import (
        LlamaConfig,
        LlamaForCausalLM,
        MambaConfig,
        MambaForCausalLM,
        MixtralConfig,
        MixtralForCausalLM,
    )

    common: dict[str, Any] = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2}
    attention: dict[str, Any] = {
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 48,
        "max_position_embeddings": 64,
        "attn_implementation": "eager",
    }
    torch.manual_seed(0)
    yield "llama", LlamaForCausalLM(LlamaConfig(**common, **attention))
    yield "mixtral", MixtralForCausalLM(MixtralConfig(**common, **attention, num_local_experts=4))
    yield "mamba", MambaForCausalLM(MambaConfig(**common, state_size=4))


def check_model(name: str, model: Any, mode: str) -> None:
    """A forward pass, the gradients of a loss, and (in eager modes) tokens made with a static key-value cache."""
    import copy

    import torch

    torch.manual_seed(1)
    tokens = torch.randint(0, 64, (2, 8))
    reference = model.eval()
    placed = copy.deepcopy(reference).to("tpu")
    # Moving a module to this device makes shared parameters separate ones.
    placed.tie_weights()

    def loss(network: Any, ids: Any) -> tuple[Any, Any]:
        outputs = network(input_ids=ids, labels=ids, use_cache=False)
        return outputs.loss, outputs.logits

    expected_loss, expected_logits = loss(reference, tokens)
    expected_loss.backward()
    actual_loss, actual_logits = on_device(lambda ids: loss(placed, ids), (tokens,), mode)
    actual_loss.backward()
    check(f"{name} logits", mode, difference(actual_logits, expected_logits))
    check(f"{name} loss", mode, difference(actual_loss, expected_loss))
    gradients = dict(placed.named_parameters())
    worst = max(
        difference(gradients[key].grad, parameter.grad)
        for key, parameter in reference.named_parameters()
        if parameter.grad is not None and parameter.grad.abs().max() > 0
    )
    check(f"{name} gradients", mode, worst, 1e-5)
    reference.zero_grad(set_to_none=True)
    if mode != "compiled":
        cache = {"cache_implementation": "static", "disable_compile": True} if name != "mamba" else {}

        def generate(network: Any, ids: Any) -> Any:
            with torch.no_grad():
                return network.generate(ids, max_new_tokens=4, min_new_tokens=4, do_sample=False, **cache)

        wanted = generate(reference, tokens)
        made = on_device(lambda ids: generate(placed, ids), (tokens,), mode)
        check(f"{name} tokens", mode, float((made.cpu() != wanted).sum()), 0)


def check_failures_are_recorded() -> None:
    """What XLA:CPU refuses is an exception, and the statistics say which custom call it was."""
    import torch

    query = torch.rand(1, 2, 128, 64)
    try:
        on_device(lambda q: torch.nn.functional.scaled_dot_product_attention(q, q, q), (query,), "strict-eager").cpu()
    except RuntimeError as error:
        assert "tpu_custom_call" in str(error), error
    else:
        raise AssertionError("a Mosaic kernel ran on a CPU")
    failures = statistics()["compile_failures"]
    assert any("tpu_custom_call" in failure["custom_calls"] for failure in failures), failures


def check_emulated_limit() -> None:
    """In a process of its own with 1 MB of emulated memory: small things work, a large one is out of memory."""
    import torch

    pid = os.fork()
    if pid == 0:
        os.environ["MODELFARM_PJRT_HBM_BYTES"] = "1000000"
        status = 1
        try:
            small = torch.ones(1000).to("tpu")
            assert (small + 1).sum().cpu() == 2000
            try:
                torch.ones(300_000).to("tpu").cpu()
            except RuntimeError as error:
                assert "emulated HBM limit" in str(error), error
                status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, "the emulated memory limit did not hold"


def check_rewriter_survives_nonsense(socket: Path) -> None:
    """A broken program gets a reason, in this conversation and without harm to the next."""
    import socket as sockets
    import struct

    for program in (b"no program", b"ML\xefR" + bytes(range(256)), b"ML\xefR\x0dStableHLO_v1.0.0\0" + b"\xff" * 64):
        with sockets.socket(sockets.AF_UNIX) as connection:
            connection.connect(str(socket))
            with connection.makefile("rwb") as stream:
                stream.write(struct.pack("<4sQ", b"MFR1", len(program)) + program)
                stream.flush()
                answer = stream.read(13)
                # A crash of MLIR would end the conversation; both are fine, a rewritten program is not.
                if answer:
                    magic, status, length = struct.unpack("<4sBQ", answer)
                    assert (magic, status) == (b"MFR1", 1), answer
                    assert stream.read(length), "a refusal needs a reason"


def main() -> None:
    """Runs everything."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with rewriter(folder) as socket:
            check_rewriter_survives_nonsense(socket)
            start(folder, socket)
            # Before this process has a client: a device does not survive a fork.
            check_emulated_limit()
            import torch

            for name, function, arguments in operators():
                for mode in MODES:
                    with torch.no_grad():
                        check(name, mode, difference(on_device(function, arguments, mode), function(*arguments)), 1e-5)
            for name, model in models():
                for mode in MODES:
                    check_model(name, model, mode)
            check_failures_are_recorded()
            counters = statistics()
            assert counters["platform"] == "cpu"
            assert counters["rewrite_count"] > 0 and counters["rewrite_failed_count"] == 0, counters
            assert counters["execute_count"] > counters["compile_count"] > 0, counters
            print({key: value for key, value in counters.items() if not isinstance(value, list)})


if __name__ == "__main__":
    main()
