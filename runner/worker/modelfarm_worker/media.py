"""Images and videos: from the repository's image processor where it has one, else shaped by configuration."""

import sys
from typing import Any

import torch

from modelfarm_worker.call import Call, find, find_number
from modelfarm_worker.patches import (
    add_packed_patches,
    add_padded_patches,
    add_patches_without_tower,
    add_placed_patches,
)
from modelfarm_worker.text import BATCH

_DEFAULT_IMAGE_SIZE = 224


def add_images_and_videos(call: Call) -> None:
    """Adds what the model sees."""
    if call.takes("pixel_values"):
        _add_images(call)
    elif call.takes("pixel_values_videos"):
        call.add("pixel_values_videos", _video(call))
    elif call.takes("grid_thw"):
        add_packed_patches(call, "hidden_states" if call.takes("hidden_states") else "pixel_values", "grid_thw")
    elif getattr(call.model, "main_input_name", None) == "flattened_patches":
        add_placed_patches(call)


def _add_images(call: Call) -> None:
    if getattr(call.config, "vision_config", call) is None and not call.needs("pixel_values"):
        # It could see, and was made without a tower to see with.
        return
    if _from_processor(call):
        return
    for grid in ("image_grid_thw", "grid_thw", "image_grid_hw"):
        if call.takes(grid):
            add_packed_patches(call, "pixel_values", grid)
            return
    if call.takes("spatial_shapes") or call.takes("image_position_ids") or call.takes("pixel_position_ids"):
        add_padded_patches(call)
        return
    channels = call.number("num_channels", "in_channels", "in_chans") or 3
    if add_patches_without_tower(call, channels):
        return
    height, width = image_size(call.config)
    if call.needs("prompt_pixel_values"):
        # The prompt stands above the image.
        height //= 2
    shape: tuple[int, ...] = (BATCH, channels, height, width)
    frames = call.number("num_frames")
    if frames is not None and "ImageClassification" not in type(call.model).__name__:
        shape = (BATCH, frames, channels, height, width)
    elif (
        call.takes("pixel_attention_mask")
        or call.takes("perceiver_embeddings")
        or find(call.config, "projector_pooling_ratio") is not None
    ):
        # A list of images for each text, here of one.
        shape = (BATCH, 1, channels, height, width)
    elif call.takes("aspect_ratio_ids"):
        shape = (BATCH, 1, call.number("max_num_tiles") or 4, channels, height, width)
    elif find(call.config, "image_grid_pinpoints") is not None and call.takes("image_sizes"):
        shape = (BATCH, _tiles(call, height), channels, height, width)
    elif call.number("video_token_index") is not None and call.number("image_token_id", "image_token_index") is None:
        shape = (BATCH, 4, channels, height, width)
    elif _matches_pairs(call):
        # Two pictures of one scene.
        shape = (BATCH, 2, channels, height, width)
    call.add("pixel_values", call.noise(*shape))
    _add_descriptions(call, height, width)


def _add_descriptions(call: Call, height: int, width: int) -> None:
    """What some models want to be told about their images."""
    if call.takes("image_sizes"):
        call.add("image_sizes", torch.tensor([[height, width]] * BATCH))
    if call.takes("pixel_attention_mask"):
        whole = call.takes("tile_fine_mask") or call.takes("action_embeds")
        shape = (BATCH, 1) if whole else (BATCH, 1, height, width)
        call.add("pixel_attention_mask", torch.ones(shape, dtype=torch.bool))
    if call.takes("image_attention_mask") and call.takes("perceiver_embeddings"):
        # Which of the images each token may look at: all.
        call.add("image_attention_mask", torch.ones((BATCH, 16, 1), dtype=torch.long))
    if call.takes("aspect_ratio_ids"):
        tiles = call.inputs["pixel_values"].shape[2]
        call.add("aspect_ratio_ids", torch.ones((BATCH, 1), dtype=torch.long))
        call.add("aspect_ratio_mask", torch.ones((BATCH, 1, tiles), dtype=torch.long))
        call.add("cross_attention_mask", torch.ones((BATCH, 16, 1, tiles), dtype=torch.long))
    if call.takes("target_sizes"):
        patch = call.number("patch_size") or 14
        call.add("target_sizes", torch.tensor([[height // patch, width // patch]] * BATCH))
        if call.takes("input_ids"):
            try:
                call.features("get_image_features")
                return
            except (RuntimeError, ValueError):
                pass
        # All patches of all images side by side, as one long image.
        rows = BATCH * (height // patch) * (width // patch)
        channels = call.inputs["pixel_values"].shape[1]
        call.add("pixel_values", call.noise(1, channels, patch, rows * patch))
    if call.takes("high_res_pixel_values"):
        size = find(getattr(call.config, "high_res_vision_config", None) or call.config, "image_size")
        call.add("high_res_pixel_values", call.noise(BATCH, 3, size, size))
    if call.takes("bool_masked_pos") and call.needs("bool_masked_pos"):
        patch = call.number("patch_size") or 16
        call.add("bool_masked_pos", call.ids(2, BATCH, (height // patch) * (width // patch)).bool())
    if call.takes("noise") and find(call.config, "mask_ratio") is not None:
        patches = getattr(getattr(call.model.base_model, "embeddings", None), "num_patches", None)
        if not isinstance(patches, int):
            patch = call.number("patch_size") or 16
            patches = (height // patch) * (width // patch)
        # What the model would draw itself to choose what it hides.
        call.add("noise", torch.rand((BATCH, patches), generator=call.generator))


def _matches_pairs(call: Call) -> bool:
    matching = type(call.model).__name__.endswith("KeypointMatching")
    return matching or find(call.config, "coarse_matching_border_removal") is not None


def _tiles(call: Call, size: int) -> int:
    """How many tiles the library cuts an image of the tower's size into, with the whole image."""
    counting = getattr(sys.modules[type(call.model).__module__], "image_size_to_num_patches", None)
    if counting is None:
        return 1 + len(find(call.config, "image_grid_pinpoints")[0])
    return counting([size, size], find(call.config, "image_grid_pinpoints"), size)


def _from_processor(call: Call) -> bool:
    if not (call.path / "preprocessor_config.json").exists() or find(call.config, "num_frames") is not None:
        return False
    from transformers import AutoImageProcessor

    try:
        processor = AutoImageProcessor.from_pretrained(call.path, local_files_only=True, trust_remote_code=call.trust)
        pictures = torch.randint(0, 256, (BATCH, 3, 64, 64), generator=call.generator, dtype=torch.uint8)
        values = processor(images=list(pictures), return_tensors="pt")
    except Exception as error:
        # As with tokenizers: pictures of the right shape serve as well.
        print(f"image processor not used: {type(error).__name__}: {error}")
        return False
    made = {n: v for n, v in values.items() if n in call.parameters and isinstance(v, torch.Tensor)}
    for name, value in made.items():
        call.add(name, value, "processor")
    return bool(made)


def image_size(config: Any) -> tuple[int, int]:
    ratios = find(config, "scaled_images_ratios")
    if ratios is not None:
        # At its smallest scale the whole image is one patch.
        size = round((find_number(config, "patch_size") or 384) / min(ratios))
        return size, size
    size = find(config, "image_size", "img_size", "max_img_size") or find(config, "input_size")
    if isinstance(size, (list, tuple)) and len(size) >= 2:
        return int(size[-2]), int(size[-1])
    if isinstance(size, dict):
        return int(size["height"]), int(size["width"])
    if isinstance(size, int):
        return size, size
    return _DEFAULT_IMAGE_SIZE, _DEFAULT_IMAGE_SIZE


def _video(call: Call) -> torch.Tensor:
    channels = call.number("num_channels", "in_channels") or 3
    frames = call.number("num_frames", "frames_per_clip") or 8
    height, width = image_size(call.config) if find(call.config, "crop_size") is None else _crop(call)
    return call.noise(BATCH, frames, channels, height, width)


def _crop(call: Call) -> tuple[int, int]:
    size = find_number(call.config, "crop_size") or _DEFAULT_IMAGE_SIZE
    return size, size


def image_token_ids(call: Call) -> list[int]:
    """The tokens that stand for one image in the text, where the model wants them there."""
    token = call.number("image_token_id", "image_token_index")
    reader = "get_image_features"
    if token is None:
        token, reader = call.number("video_token_index"), "get_video_features"
    if token is None or "pixel_values" not in call.inputs:
        return []
    try:
        count = call.features(reader)
    except TypeError:
        # It wants to know the text that its queries are about; there are as many of them whatever that says.
        count = call.number("num_query_tokens")
        if count is not None and call.inputs["pixel_values"].ndim == 5:
            count *= call.inputs["pixel_values"].shape[1]
    if count is None:
        return []
    start = call.number("vision_start_token_id", "boi_token_id", "boi_token_index", "image_start_token_id")
    end = call.number("vision_end_token_id", "eoi_token_id", "eoi_token_index", "image_end_token_id")
    block = [token] * count
    return ([start] if start is not None else []) + block + ([end] if end is not None else [])
