"""Images, videos and sounds: from the repository's image processor where it has one, else shaped by configuration."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from modelfarm_worker.text import BATCH

_SUBCONFIGS = (
    "vision_config",
    "backbone_config",
    "encoder",
    "audio_config",
    "audio_encoder",
    "text_config",
    "decoder",
)
_DEFAULT_IMAGE_SIZE = 224
_WAVE_SAMPLES = 4000
_FEATURE_FRAMES = 64

Made = dict[str, tuple[torch.Tensor, str]]


def find(config: Any, *names: str) -> Any:
    """The first of `names` that the configuration, or else one inside it, has a value for."""
    for candidate in [config, *(getattr(config, name, None) for name in _SUBCONFIGS)]:
        if candidate is None:
            continue
        for name in names:
            value = candidate.get(name) if isinstance(candidate, dict) else getattr(candidate, name, None)
            if value is not None:
                return value
    return None


def find_number(config: Any, *names: str) -> int | None:
    value = find(config, *names)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


class Media:
    """Makes what a model sees and hears."""

    def __init__(self, model: torch.nn.Module, path: Path, trust: bool, generator: torch.Generator) -> None:
        self._model = model
        self._config = model.config
        self._path = path
        self._trust = trust
        self._generator = generator
        self.image_token_id = find_number(model.config, "image_token_id", "image_token_index")

    def make(self, parameters: Mapping[str, Any]) -> Made:
        made: Made = {}
        if "pixel_values" in parameters:
            made.update(self._images(parameters))
        elif "pixel_values_videos" in parameters:
            made["pixel_values_videos"] = (self._video(), "configuration")
        if "input_features" in parameters:
            made["input_features"] = (self._features(), "configuration")
        if "input_values" in parameters:
            made["input_values"] = (self._wave(), "configuration")
        return made

    def image_token_ids(self, inputs: dict[str, torch.Tensor]) -> list[int]:
        """The tokens that stand for one image in the text, where the model wants them there."""
        if self.image_token_id is None or "pixel_values" not in inputs:
            return []
        count = self._image_features(inputs)
        start = find_number(self._config, "vision_start_token_id", "boi_token_id", "boi_token_index")
        end = find_number(self._config, "vision_end_token_id", "eoi_token_id", "eoi_token_index")
        block = [self.image_token_id] * count
        return ([start] if start is not None else []) + block + ([end] if end is not None else [])

    def _image_features(self, inputs: dict[str, torch.Tensor]) -> int:
        """How many places in the text one image takes: as many as the model makes features of it."""
        import inspect

        function = getattr(self._model, "get_image_features", None)
        if function is None:
            function = self._model.base_model.get_image_features
        accepted = inspect.signature(function).parameters
        dtype = next(self._model.parameters()).dtype
        arguments = {
            name: value.to(dtype) if value.is_floating_point() else value
            for name, value in inputs.items()
            if name in accepted or name in ("pixel_values", "image_grid_thw", "image_sizes")
        }
        with torch.no_grad():
            features = function(**arguments)
        features = getattr(features, "pooler_output", features)
        parts = list(features) if isinstance(features, (list, tuple)) else [features]
        rows = sum(part.numel() // part.shape[-1] for part in parts)
        return rows // BATCH

    def _images(self, parameters: Mapping[str, Any]) -> Made:
        processed = self._from_processor(parameters)
        if processed is not None:
            return processed
        if "image_grid_thw" in parameters:
            return self._patches()
        channels = find_number(self._config, "num_channels", "in_channels", "in_chans") or 3
        height, width = self._image_size()
        shape: tuple[int, ...] = (BATCH, channels, height, width)
        frames = find_number(self._config, "num_frames")
        if frames is not None:
            shape = (BATCH, frames, channels, height, width)
        return {"pixel_values": (torch.randn(shape, generator=self._generator), "configuration")}

    def _from_processor(self, parameters: Mapping[str, Any]) -> Made | None:
        if not (self._path / "preprocessor_config.json").exists() or find(self._config, "num_frames") is not None:
            return None
        from transformers import AutoImageProcessor

        try:
            processor = AutoImageProcessor.from_pretrained(
                self._path, local_files_only=True, trust_remote_code=self._trust
            )
            pictures = torch.randint(0, 256, (BATCH, 3, 64, 64), generator=self._generator, dtype=torch.uint8)
            values = processor(images=list(pictures), return_tensors="pt")
        except Exception as error:
            # As with tokenizers: pictures of the right shape serve as well.
            print(f"image processor not used: {type(error).__name__}: {error}")
            return None
        return {
            name: (value, "processor")
            for name, value in values.items()
            if name in parameters and isinstance(value, torch.Tensor)
        } or None

    def _patches(self) -> Made:
        """Images as rows of flattened patches with the grid that they came from."""
        patch = find_number(self._config, "patch_size") or 14
        merge = find_number(self._config, "spatial_merge_size", "merge_size") or 2
        channels = find_number(self._config, "in_channels", "in_chans", "num_channels") or 3
        depth = find_number(self._config, "temporal_patch_size") or 1
        grid = torch.tensor([[1, 2 * merge, 2 * merge]] * BATCH)
        rows = int(grid.prod(dim=1).sum())
        pixels = torch.randn((rows, channels * depth * patch * patch), generator=self._generator)
        return {"pixel_values": (pixels, "configuration"), "image_grid_thw": (grid, "configuration")}

    def _image_size(self) -> tuple[int, int]:
        size = find(self._config, "image_size", "img_size")
        if isinstance(size, (list, tuple)) and len(size) >= 2:
            return int(size[-2]), int(size[-1])
        if isinstance(size, dict):
            return int(size["height"]), int(size["width"])
        if isinstance(size, int):
            return size, size
        return _DEFAULT_IMAGE_SIZE, _DEFAULT_IMAGE_SIZE

    def _video(self) -> torch.Tensor:
        channels = find_number(self._config, "num_channels", "in_channels") or 3
        frames = find_number(self._config, "num_frames", "frames_per_clip") or 8
        height, width = self._image_size()
        return torch.randn((BATCH, frames, channels, height, width), generator=self._generator)

    def _features(self) -> torch.Tensor:
        """A spectrogram: (batch, bins, frames) where the number of frames is fixed, else (batch, frames, bins)."""
        fixed = find_number(self._config, "max_source_positions")
        bins = find_number(self._config, "num_mel_bins")
        if fixed is not None and bins is not None and find_number(self._config, "input_feat_per_channel") is None:
            # Two convolutions, the second with stride 2, stand before the encoder's positions.
            return torch.randn((BATCH, bins, fixed * 2), generator=self._generator)
        size = find_number(
            self._config,
            "input_feat_per_channel",
            "feature_projection_input_dim",
            "num_mel_bins",
            "input_dim",
            "n_mels",
        )
        return torch.randn((BATCH, _FEATURE_FRAMES, size or 80), generator=self._generator)

    def _wave(self) -> torch.Tensor:
        """A raw sound (batch, samples), or with a channel or a spectrogram where the configuration says so."""
        frames, bins = find_number(self._config, "max_length"), find_number(self._config, "num_mel_bins")
        if frames is not None and bins is not None and find(self._config, "frequency_stride") is not None:
            return torch.randn((BATCH, frames, bins), generator=self._generator)
        channels = find_number(self._config, "audio_channels")
        if channels is not None:
            return torch.randn((BATCH, channels, _WAVE_SAMPLES), generator=self._generator)
        return torch.randn((BATCH, _WAVE_SAMPLES), generator=self._generator)
