"""What drives the models of other libraries than transformers, a module for each.

A driver has two functions. `load` gives a module in evaluation mode whose forward takes the inputs by name, and
nothing else; `make_inputs` gives these inputs, on the CPU, with the source of each. What a forward needs besides
tensors the module that `load` gives adds by itself, so that a case needs no more than the file of its inputs.
Libraries are imported where they are needed: a job of transformers does not pay for them.
"""

from collections.abc import Callable
from typing import Any, Protocol

import torch

from modelfarm_worker.model import RequestError

Inputs = tuple[dict[str, torch.Tensor], dict[str, str]]


class Driver(Protocol):
    load: Callable[[dict[str, Any], torch.dtype, str | None, int], torch.nn.Module]
    make_inputs: Callable[[torch.nn.Module, dict[str, Any], str, str, int], Inputs]


def driver(name: str) -> Driver:
    """The driver of a harness."""
    match name:
        case "diffusers":
            from modelfarm_worker.harness import diffusers as found
        case "timm":
            from modelfarm_worker.harness import timm as found
        case "sentence-transformers":
            from modelfarm_worker.harness import sentence_transformers as found
        case _:
            raise RequestError(
                f"unknown harness {name!r}: expected transformers, diffusers, timm or sentence-transformers"
            )
    return found


def make_inputs(
    model: torch.nn.Module, request_model: dict[str, Any], workload: str, profile: str, seed: int
) -> Inputs:
    """The inputs of any harness's model by argument name, and for each where it comes from."""
    if request_model["harness"] == "transformers":
        from modelfarm_worker import inputs

        return inputs.make_inputs(model, request_model, workload, profile, seed)
    if profile != "default":
        raise RequestError(f"unknown input profile {profile!r}: expected default")
    return driver(request_model["harness"]).make_inputs(model, request_model, workload, profile, seed)
