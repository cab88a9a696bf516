"""Leaves: names, contents and storage."""

from dataclasses import dataclass

import pytest
import torch

from modelfarm_worker import leaves
from modelfarm_worker.child import bounded_text, describe_failure


@dataclass
class Output:
    state: torch.Tensor
    rest: object = None


def test_flatten_names_what_is_nested():
    tensor = torch.ones(2)
    nested = {
        "logits": tensor,
        "states": (tensor, [tensor]),
        "none": None,
        "part": Output(tensor, {"x": tensor}),
        "n": 3,
    }
    assert list(leaves.flatten(nested)) == ["logits", "states.0", "states.1.0", "part.state", "part.rest.x"]
    assert list(leaves.flatten(tensor)) == ["output"]


def test_two_leaves_of_one_name_are_an_error():
    with pytest.raises(ValueError, match="share the path"):
        leaves.flatten({"a.b": torch.ones(1), "a": {"b": torch.ones(1)}})


def test_endless_nesting_is_an_error():
    endless = []
    endless.append(endless)
    with pytest.raises(ValueError, match="nested deeper"):
        leaves.flatten(endless)


def test_shared_and_strided_leaves_can_be_written(tmp_path):
    base = torch.arange(6.0).reshape(2, 3)
    values = {"whole": base, "turned": base.T, "row": base[0], "complex": torch.complex(base, base)}
    name = leaves.write(leaves.read_back(values), tmp_path, "outputs")
    back = leaves.read(tmp_path / name)
    assert torch.equal(back["turned"], base.T)
    assert torch.equal(back["row"], base[0])
    assert back["complex"].shape == (2, 3, 2)


def test_device_names():
    assert leaves.devices({"a": torch.ones(1), "b": torch.ones(1, device="meta")}) == ["cpu", "meta"]
    assert leaves.device_name(torch.device("cuda")) == "cuda:0"


def test_long_text_keeps_both_ends():
    text = "begin " + "ä" * 100_000 + " end"
    short = bounded_text(text, 1000)
    assert len(short.encode()) <= 1000
    assert short.startswith("begin")
    assert short.endswith("end")
    assert bounded_text("short", 1000) == "short"


def test_failure_of_an_exception_that_cannot_be_printed():
    class Odd(Exception):
        def __str__(self):
            raise RuntimeError("no")

    failed = describe_failure(Odd())
    assert failed["exception"].endswith("Odd")
    assert "could not be made" in failed["message"]
