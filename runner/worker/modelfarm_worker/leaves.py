"""Leaves: the tensors of a model's outputs under dotted paths, and the files that they travel in."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import torch

_MAX_DEPTH = 32


def flatten(value: Any) -> dict[str, torch.Tensor]:
    """Every tensor in nested mappings, sequences and data classes, by its dotted path."""
    leaves: dict[str, torch.Tensor] = {}
    _collect(value, (), leaves)
    return leaves


def _collect(value: Any, path: tuple[str, ...], leaves: dict[str, torch.Tensor]) -> None:
    if isinstance(value, torch.Tensor):
        name = ".".join(path) or "output"
        if name in leaves:
            raise ValueError(f"two tensors of the outputs share the path {name!r}")
        leaves[name] = value
        return
    if len(path) >= _MAX_DEPTH:
        raise ValueError(f"the outputs are nested deeper than {_MAX_DEPTH} levels at {'.'.join(path)[:200]!r}")
    if isinstance(value, Mapping):
        items = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, (list, tuple)):
        items = [(str(index), item) for index, item in enumerate(value)]
    elif is_dataclass(value) and not isinstance(value, type):
        items = [(field.name, getattr(value, field.name)) for field in fields(value)]
    else:
        return  # caches, numbers, strings and None are not outputs that can be compared
    for key, item in items:
        _collect(item, (*path, key), leaves)


def read_back(leaves: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The leaves in host memory, each with storage of its own. Deferred errors of a device surface here."""
    result = {}
    for name, leaf in leaves.items():
        host = leaf.detach().cpu()
        if host.layout != torch.strided:
            host = host.to_dense()
        if host.is_complex():
            host = torch.view_as_real(host)
        result[name] = host.resolve_neg().contiguous().clone()
    return result


def write(leaves: dict[str, torch.Tensor], folder: Path, role: str) -> str:
    """Writes leaves as `<role>.safetensors` in `folder`; returns the file's name."""
    from safetensors.torch import save_file

    name = f"{role}.safetensors"
    save_file(leaves, folder / name)
    return name


def read(file: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(file)


def devices(leaves: Mapping[str, torch.Tensor]) -> list[str]:
    """The distinct devices of some tensors, sorted."""
    return sorted({device_name(leaf.device) for leaf in leaves.values()})


def device_name(device: torch.device) -> str:
    """`tpu:0`, `cpu`: a device without an index is the first of its type, except the only CPU."""
    return device.type if device.type in ("cpu", "meta") else f"{device.type}:{device.index or 0}"
