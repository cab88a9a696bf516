"""Images that a model takes as patches: rows of all images with the grid of each, or as many rows for each image."""

import torch

from modelfarm_worker.call import Call, find
from modelfarm_worker.text import BATCH


def add_packed_patches(call: Call, name: str, grid_name: str) -> None:
    """Patches of all images, one after another, and the grid that each image's came from."""
    patch = _edge(call)
    merge = _merge(call)
    channels = call.number("in_channels", "in_chans", "num_channels") or 3
    depth = call.number("temporal_patch_size", "patch_temporal") or 1
    grid = torch.tensor([[1, 2 * merge, 2 * merge]] * BATCH)
    rows = int(grid.prod(dim=1).sum())
    pixels = call.noise(rows, channels * depth * patch * patch)
    call.add(grid_name, grid[:, 1:] if grid_name.endswith("_hw") else grid)
    for merges in ("image_merge_sizes", "merge_sizes"):
        if call.takes(merges):
            call.add(merges, torch.tensor([merge] * BATCH))
    if call.takes("image_sizes"):
        call.add("image_sizes", torch.tensor([[2 * merge * patch, 2 * merge * patch]] * BATCH))
    call.add(name, pixels)
    layouts = [pixels]
    if depth == 1:
        layouts.append(pixels.reshape(rows, channels, patch, patch))
        # Patches that are merged already, as small pictures.
        layouts.append(pixels.repeat(1, merge * merge).reshape(rows, merge * patch, merge * patch, channels))
    else:
        layouts.append(pixels.reshape(rows, channels * depth, patch, patch))
    call.add(name, _accepted(call, name, layouts))


def _accepted(call: Call, name: str, layouts: list[torch.Tensor]) -> torch.Tensor:
    """The first layout that the model can read. Nearly all take flat rows, so that it is seldom more than one try."""
    reading = call.method("get_image_features")
    for layout in layouts:
        call.inputs[name] = layout
        try:
            if reading is not None:
                call.features("get_image_features")
            elif not any(call.needs(other) for other in call.parameters):
                dtype = next(call.model.parameters()).dtype
                with torch.no_grad():
                    call.model(**{k: v.to(dtype) if v.is_floating_point() else v for k, v in call.inputs.items()})
            return layout
        except (RuntimeError, ValueError, TypeError, IndexError, AttributeError):
            continue
    return layouts[0]


def add_padded_patches(call: Call) -> None:
    """The same number of patches for each image, with their places."""
    patch = call.number("model_patch_size", "patch_size") or 16
    channels = call.number("num_channels", "in_channels") or 3
    pool = max(call.number("pooling_kernel_size") or 1, call.number("downsample_factor") or 1)
    edge = 2 * pool if pool > 1 else 4
    call.add("pixel_values", call.noise(BATCH, edge * edge, channels * patch * patch))
    if call.takes("spatial_shapes"):
        call.add("spatial_shapes", torch.tensor([[edge, edge]] * BATCH))
    if call.takes("pixel_attention_mask"):
        call.add("pixel_attention_mask", torch.ones((BATCH, edge * edge), dtype=torch.long))
    for name in ("image_position_ids", "pixel_position_ids"):
        if call.takes(name):
            rows, columns = torch.meshgrid(torch.arange(edge), torch.arange(edge), indexing="ij")
            places = torch.stack([columns.flatten(), rows.flatten()], dim=-1)
            call.add(name, places.expand(BATCH, -1, -1).clone())


def add_placed_patches(call: Call) -> None:
    """Patches with row and column, counted from one, as the first two of their numbers."""
    edge = 4
    rows, columns = torch.meshgrid(torch.arange(1, edge + 1), torch.arange(1, edge + 1), indexing="ij")
    places = torch.stack([rows.flatten(), columns.flatten()], dim=-1).expand(BATCH, -1, -1)
    width = call.number("patch_embed_hidden_size") or 3 * _edge(call) ** 2
    patches = torch.cat([places, call.noise(BATCH, edge * edge, width)], dim=-1)
    call.add("flattened_patches", patches)
    if call.takes("attention_mask"):
        call.add("attention_mask", torch.ones((BATCH, edge * edge), dtype=torch.long))


def add_patches_without_tower(call: Call, channels: int) -> bool:
    """Patches for a model that reads them with one linear layer, beside its text. False if it is another."""
    patch = _edge(call)
    width = channels * patch * patch
    if find(call.config, "vision_config") is not None or "input_ids" not in call.parameters:
        return False
    modules = list(call.model.modules())
    if any(isinstance(module, torch.nn.Conv2d | torch.nn.Conv3d) for module in modules):
        return False
    if not any(isinstance(module, torch.nn.Linear) and module.in_features == width for module in modules):
        return False
    pixels = call.noise(BATCH, 4, width)
    # A model that tells the width of its patches takes those of all images as rows.
    call.add("pixel_values", pixels if find(call.config, "patch_dim") is None else pixels.reshape(-1, width))
    return True


def _edge(call: Call) -> int:
    patch = find(call.config, "patch_size")
    if isinstance(patch, (list, tuple)):
        patch = patch[-1]
    return patch if isinstance(patch, int) else 14


def _merge(call: Call) -> int:
    merge = find(call.config, "spatial_merge_size", "merge_size", "merge_kernel_size")
    if isinstance(merge, (list, tuple)):
        merge = merge[-1]
    return merge if isinstance(merge, int) and merge > 0 else 2
