"""Nested arguments as a flat table of tensors: `added_cond_kwargs.time_ids`, `controlnet_cond.0`."""

from collections.abc import Mapping
from typing import Any

import torch


def flatten_tensors(arguments: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """The tensors of nested mappings and lists, by dotted name."""
    found: dict[str, torch.Tensor] = {}
    for name, value in arguments.items():
        if isinstance(value, torch.Tensor):
            found[name] = value
        elif isinstance(value, (Mapping, list, tuple)):
            found |= {f"{name}.{key}": tensor for key, tensor in flatten_tensors(_by_name(value)).items()}
    return found


def without_tensors(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The same arguments with nothing in the tensors' places."""
    return {name: _without(value) for name, value in arguments.items()}


def insert_tensors(arguments: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """The arguments again, with tensors in the places that have their names."""
    return {name: _inserted(value, name, tensors) for name, value in arguments.items()}


def _by_name(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {str(index): item for index, item in enumerate(value)}


def _without(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return None
    if isinstance(value, Mapping):
        return without_tensors(value)
    return type(value)(map(_without, value)) if isinstance(value, (list, tuple)) else value


def _inserted(value: Any, name: str, tensors: Mapping[str, torch.Tensor]) -> Any:
    if name in tensors:
        return tensors[name]
    if isinstance(value, Mapping):
        return {key: _inserted(item, f"{name}.{key}", tensors) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_inserted(item, f"{name}.{index}", tensors) for index, item in enumerate(value))
    return value
