"""What the rules for inputs share: the model, its configuration and signature, and the inputs made so far."""

import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from modelfarm_worker.text import BATCH

# Where a number is looked for first; other configurations inside come after these.
_SUBCONFIGS = (
    "vision_config",
    "backbone_config",
    "encoder",
    "audio_config",
    "audio_encoder",
    "text_config",
    "decoder",
)


def configurations(config: Any) -> Iterator[Any]:
    """The configuration and all inside it, nearest first."""
    yield config
    held = config if isinstance(config, dict) else vars(config)
    named = [held[name] for name in _SUBCONFIGS if held.get(name) is not None and name in held]
    others = [
        value
        for name, value in held.items()
        if name not in _SUBCONFIGS and not name.startswith("_") and hasattr(value, "model_type")
    ]
    yield from named
    yield from others
    for inner in [*named, *others]:
        if hasattr(inner, "model_type"):
            found = configurations(inner)
            next(found)
            yield from found


def find(config: Any, *names: str) -> Any:
    """The first of `names` that the configuration, or else one inside it, has a value for."""
    for candidate in configurations(config):
        for name in names:
            value = candidate.get(name) if isinstance(candidate, dict) else getattr(candidate, name, None)
            if value is not None:
                return value
    return None


def find_number(config: Any, *names: str) -> int | None:
    value = find(config, *names)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def is_required(parameter: inspect.Parameter) -> bool:
    return parameter.default is inspect.Parameter.empty and parameter.kind in (
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.KEYWORD_ONLY,
    )


class Call:
    """One call of a model, while its inputs are made."""

    def __init__(self, model: torch.nn.Module, path: Path, trust: bool, generator: torch.Generator) -> None:
        self.model = model
        self.config = model.config
        self.path = path
        self.trust = trust
        self.generator = generator
        self.parameters: Mapping[str, inspect.Parameter] = inspect.signature(model.forward).parameters
        self.inputs: dict[str, torch.Tensor] = {}
        self.sources: dict[str, str] = {}

    def add(self, name: str, value: torch.Tensor, source: str = "configuration") -> None:
        self.inputs[name], self.sources[name] = value, source

    def takes(self, name: str) -> bool:
        return name in self.parameters

    def needs(self, name: str) -> bool:
        """Whether the forward cannot do without an argument that is not there yet."""
        return name in self.parameters and is_required(self.parameters[name]) and name not in self.inputs

    def number(self, *names: str) -> int | None:
        return find_number(self.config, *names)

    def noise(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=self.generator)

    def ids(self, limit: int, *shape: int) -> torch.Tensor:
        return torch.randint(0, max(1, limit), shape, generator=self.generator)

    def method(self, name: str) -> Any:
        """A method of the model or of the base model inside it."""
        return next(self._methods(name), None)

    def _methods(self, name: str) -> Iterator[Any]:
        for owner in (
            self.model,
            getattr(self.model, "base_model", None),
            getattr(self.model, "model", None),
            getattr(self.model, "encoder", None),
        ):
            found = getattr(owner, name, None)
            if found is not None:
                yield found

    def _accepted(self, name: str) -> set[str]:
        """The arguments of the method. One that takes any hands them on to the same method of the model inside."""
        accepted: set[str] = set()
        for function in self._methods(name):
            parameters = inspect.signature(function).parameters
            accepted |= parameters.keys()
            if not _open(parameters):
                return accepted
        return accepted | {"pixel_values", "image_grid_thw", "image_sizes"}

    def features(self, name: str) -> int | None:
        """How many rows a method such as `get_image_features` makes of one sample's part of the inputs so far."""
        function = self.method(name)
        if function is None:
            return None
        accepted = self._accepted(name)
        dtype = next(self.model.parameters()).dtype
        arguments = {
            key: value.to(dtype) if value.is_floating_point() else value
            for key, value in self.inputs.items()
            if key in accepted
        }
        with torch.no_grad():
            made = function(**arguments)
        return _rows(made) // BATCH


def _open(accepted: Mapping[str, inspect.Parameter]) -> bool:
    return any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in accepted.values())


def _rows(made: Any) -> int:
    pooled = getattr(made, "pooler_output", None)
    made = pooled if pooled is not None else getattr(made, "last_hidden_state", made)
    parts = list(made) if isinstance(made, (list, tuple)) else [made]
    return sum(part.numel() // part.shape[-1] for part in parts)
