"""Moves a model to a device."""

import torch


def place(model: torch.nn.Module, device: str) -> list[str]:
    """Moves parameters and buffers; returns the names of parameters whose tie to another was lost on the way.

    Where a device's tensors are of another kind than the CPU's, PyTorch makes a new parameter for each place that holds
    one, so that tied weights come apart and would be trained apart. They are tied again here.
    """
    shared: dict[int, list[tuple[torch.nn.Module, str, str]]] = {}
    for path, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            shared.setdefault(id(parameter), []).append((module, name, f"{path}.{name}".lstrip(".")))
    model.to(device)
    untied = []
    for (first, first_name, _), *others in shared.values():
        kept = getattr(first, first_name)
        for module, name, path in others:
            if getattr(module, name) is not kept:
                setattr(module, name, kept)
                untied.append(path)
    return untied
