"""What is done with a model: `forward`, `generate`, `train-step`. Each returns the leaves, still on their device."""

import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from modelfarm_worker.leaves import flatten
from modelfarm_worker.model import RequestError
from modelfarm_worker.padding import padded_places
from modelfarm_worker.text import text_config

NEW_TOKENS = 8
LEARNING_RATE = 0.1

# What a repository may ask for besides taking the best token, early stops included. All of it is switched off, so that
# each token is the argmax of its logits.
_CHANGES_OF_LOGITS = (
    "bad_words_ids",
    "begin_suppress_tokens",
    "encoder_no_repeat_ngram_size",
    "encoder_repetition_penalty",
    "eos_token_id",
    "exponential_decay_length_penalty",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "guidance_scale",
    "min_length",
    "min_new_tokens",
    "no_repeat_ngram_size",
    "repetition_penalty",
    "sequence_bias",
    "stop_strings",
    "suppress_tokens",
)

Leaves = dict[str, torch.Tensor]
Inputs = dict[str, torch.Tensor]


@dataclass
class Workload:
    """How one workload is run on a model: `warm` leaves the model as it was, `run` gives the leaves."""

    warm: Callable[[], Any]
    run: Callable[[], Leaves]
    facts: dict[str, Any] = field(default_factory=dict)


def make_workload(name: str, model: torch.nn.Module, inputs: Inputs) -> Workload:
    """The workload `name`."""
    match name:
        case "forward":
            return _forward(model, inputs)
        case "generate":
            return _generate(model, inputs)
        case "train-step":
            return _train_step(model, inputs)
        case other:
            raise RequestError(f"unknown workload {other!r}: expected forward, generate or train-step")


def forward_options(model: torch.nn.Module) -> dict[str, Any]:
    """Arguments that are not tensors: no cache where the model knows one, and outputs with names. Only models of
    transformers need any: what drives another library's model adds its own."""
    if not hasattr(model, "config"):
        return {}
    parameters = inspect.signature(model.forward).parameters
    open_ended = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    options: dict[str, Any] = {}
    keeps_cache = hasattr(text_config(model.config, decoder=True), "use_cache")
    # A model that streams decides on its cache by that, and hands on to its layers what it is told besides.
    streams = hasattr(model.config, "use_streaming")
    if "use_cache" in parameters or (open_ended and keeps_cache and not streams):
        options["use_cache"] = False
    if "return_dict" in parameters or open_ended:
        options["return_dict"] = True
    return options


def _forward(model: torch.nn.Module, inputs: Inputs) -> Workload:
    options = forward_options(model)

    def run() -> Leaves:
        # Not inference_mode: compiling under it corrupts the dispatch state of some backends.
        with torch.no_grad():
            return flatten(model(**inputs, **options))

    return Workload(warm=run, run=run)


def _generate(model: torch.nn.Module, inputs: Inputs) -> Workload:
    if not hasattr(model, "generate") or not model.can_generate():
        raise RequestError(f"{type(model).__name__} does not generate")
    options: dict[str, Any] = {
        "max_new_tokens": NEW_TOKENS,
        "do_sample": False,
        "num_beams": 1,
        "return_dict_in_generate": True,
        "output_logits": True,
    }
    if getattr(model.generation_config, "compile_config", None) is None:
        # What is compiled is for the mode to say, not for the library to guess from the device.
        options["disable_compile"] = True
    for name in _CHANGES_OF_LOGITS:
        if hasattr(model.generation_config, name):
            setattr(model.generation_config, name, None)
    workload = Workload(warm=lambda: None, run=dict)
    # State-space models keep a state of fixed size instead of a cache: for them this is the library's only choice.
    if _has_static_cache(model):
        options["cache_implementation"] = "static"
    workload.facts["cache_implementation"] = options.get("cache_implementation", "model state")

    def generate() -> Any:
        with torch.no_grad():
            return model.generate(**inputs, **options)

    def run() -> Leaves:
        began = time.monotonic()
        result = generate()
        tokens = result.sequences[:, -NEW_TOKENS:].to(torch.int64)
        tokens.cpu()  # a device may still be at work; the tokens are made when they can be read
        elapsed = time.monotonic() - began
        workload.facts["tokens_per_s"] = round(tokens.numel() / elapsed, 3)
        return {"tokens": tokens, "logits": torch.stack(tuple(result.logits))}

    workload.warm = generate
    workload.run = run
    return workload


def _has_static_cache(model: torch.nn.Module) -> bool:
    return not getattr(model, "_is_stateful", False)


def compile_model(model: torch.nn.Module, workload: str, backend: Callable[..., Any]) -> None:
    """Makes `workload` run compiled. With a static cache, transformers itself keeps the prompt's pass eager (the cache
    is made in it) and compiles the one that is repeated; everywhere else the model's forward is compiled."""
    if workload == "generate" and hasattr(model, "can_generate") and model.can_generate() and _has_static_cache(model):
        from transformers import CompileConfig

        compile_config = CompileConfig(backend=backend, dynamic=False, fullgraph=False, mode=None)
        compile_config._compile_all_devices = True
        model.generation_config.compile_config = compile_config
        model.generation_config.disable_compile = False
        return
    model.forward = torch.compile(model.forward, backend=backend, dynamic=False)


def _train_step(model: torch.nn.Module, inputs: Inputs) -> Workload:
    """One step of plain SGD. The model stays in evaluation mode, which keeps dropout off and the statistics of
    normalisation fixed: with batches of two their own noise would drown what is measured."""
    options = forward_options(model)
    _switch_dropout_off(model)
    trained = {name: value for name, value in model.named_parameters() if value.requires_grad}

    def backward() -> torch.Tensor:
        for value in trained.values():
            value.grad = None
        with torch.enable_grad():
            loss = _loss(model(**inputs, **options), inputs)
            loss.backward()
        return loss

    def run() -> Leaves:
        loss = backward()
        leaves: Leaves = {"loss": loss.detach()}
        for name, value in trained.items():
            if value.grad is not None:
                leaves[f"gradient.{name}"] = value.grad
        torch.optim.SGD(list(trained.values()), lr=LEARNING_RATE).step()
        for name, value in trained.items():
            if value.grad is not None:
                leaves[f"parameter.{name}"] = value.detach()
        return leaves

    return Workload(warm=backward, run=run)


def _loss(output: Any, inputs: Inputs) -> torch.Tensor:
    loss = getattr(output, "loss", None)
    if isinstance(loss, torch.Tensor) and loss.numel() == 1 and loss.requires_grad:
        return loss.reshape(())
    for leaf in flatten(output).values():
        if leaf.is_floating_point() and leaf.requires_grad:
            leaf = _without_padding(leaf, inputs)
            return leaf.float().square().mean() if leaf.dtype != torch.float64 else leaf.square().mean()
    raise RequestError("the model's output has no floating tensor that depends on its parameters: nothing to train")


def _without_padding(leaf: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    padded = padded_places(inputs, tuple(leaf.shape))
    if padded is None:
        return leaf
    # Of the same shape: how many there are is in no shape on the host.
    return leaf.masked_fill(padded.reshape(*padded.shape, *[1] * (leaf.dim() - 2)), 0.0)


def _switch_dropout_off(model: torch.nn.Module) -> None:
    """Also where a model drops by a number of its own rather than by a module."""
    for module in model.modules():
        if isinstance(module, torch.nn.modules.dropout._DropoutNd):
            module.p = 0.0
        for name, value in list(vars(module).items()):
            if "dropout" in name and isinstance(value, float):
                setattr(module, name, 0.0)
