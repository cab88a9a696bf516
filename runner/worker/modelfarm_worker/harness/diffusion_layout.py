"""The shape of what a diffusers model works on, by its configuration and class."""

import inspect
from typing import Any

import torch

BATCH = 2
TEXT = 8
FRAMES = 2
# Latents are made no larger than this: the models take any size, and their cost grows with its square or more.
_LARGEST = 32
_PICTURE = 32
_WAVE = 512

# Classes whose latents are sequences of patches that the pipeline packed.
_PACKED_SIZE = 4
_FRAMES_FIRST = ("CogVideoX", "ConsisID", "UNetSpatioTemporal")
_FLOWS = (
    "AuraFlow",
    "Bria",
    "Chroma",
    "Cosmos",
    "Flux",
    "LongCatImage",
    "Lumina",
    "Ovis",
    "PRX",
    "QwenImage",
    "StableAudio",
)
_TEXT_WIDTHS = (
    "joint_attention_dim",
    "caption_channels",
    "cross_attention_dim",
    "text_embed_dim",
    "text_dim",
    "cap_feat_dim",
    "cross_attention_input_dim",
    "encoder_hid_dim",
    "encoder_hidden_size",
    "context_in_dim",
    "embedding_dim",
)


class Layout:
    """What one model wants."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._config = model.config
        self._class = type(model).__name__

    def _value(self, *names: str, default: Any = None) -> Any:
        return next((self._config[name] for name in names if self._config.get(name) is not None), default)

    def is_packed(self) -> bool:
        parameters = inspect.signature(self._model.forward).parameters
        return "img_ids" in parameters or "img_shapes" in parameters or self._class.startswith("LTX")

    def is_coder(self) -> bool:
        return "Autoencoder" in self._class or self._class == "VQModel"

    def size(self) -> tuple[int, int]:
        """Height and width of the latents, or of their packed patches."""
        if self.is_packed():
            return _PACKED_SIZE, _PACKED_SIZE
        size = self._value("sample_size", "input_size")
        if size is None:
            height, width = self._value("sample_height"), self._value("sample_width")
            size = (height, width) if height and width else 8
        if self.is_coder():
            size = _PICTURE
        if isinstance(size, (list, tuple)):
            size = size[-2:] if len(size) > 1 else (size[0], size[0])
            return min(int(size[0]), _LARGEST), min(int(size[1]), _LARGEST)
        return min(int(size), _LARGEST), min(int(size), _LARGEST)

    def channels(self) -> int:
        names = ("in_channels", "input_channels", "num_channels", "out_channels", "latent_channels")
        return int(self._value(*names, default=3))

    def latents(self) -> tuple[int, ...]:
        """The shape of the first argument."""
        if self._class == "PriorTransformer":
            return BATCH, self._config["embedding_dim"]
        if self._class in ("UNet1DModel", "StableAudioDiTModel"):
            return BATCH, self.channels(), min(int(self._config["sample_size"]), _LARGEST)
        if self._class == "AutoencoderOobleck":
            return BATCH, self._config["audio_channels"], _WAVE
        if self._class == "TransformerTemporalModel":
            return BATCH * FRAMES, self.channels(), *self.size()
        if self.is_packed():
            rows = self.size()[0] * self.size()[1] * (FRAMES if self._class.startswith("LTX") else 1)
            return BATCH, rows, self.channels()
        if self.is_coder():
            return self._picture_or_video()
        if self._is_video():
            frames = FRAMES
            if self._class.startswith("CogVideoX"):
                frames = (self._config["sample_frames"] - 1) // self._config["temporal_compression_ratio"] + 1
            if self._class.startswith(_FRAMES_FIRST):
                return BATCH, frames, self.channels(), *self.size()
            return BATCH, self.channels(), frames, *self.size()
        return BATCH, self.channels(), *self.size()

    def _is_video(self) -> bool:
        return "3D" in self._class or self._class.startswith(("UNetMotion", "UNetSpatioTemporal", "I2VGenXL", "Cosmos"))

    def _picture_or_video(self) -> tuple[int, ...]:
        channels = self._value("in_channels", "encoder_in_channels", "input_channels", default=3)
        if self._class == "AutoencoderKLMochi":
            channels = self._config["out_channels"]  # it makes more of them by itself
        if self._class == "AutoencoderKLTemporalDecoder":
            return BATCH, channels, *self.size()
        if any(isinstance(module, torch.nn.Conv3d) for module in self._model.modules()):
            # The first frame stands for itself, the others are compressed in groups of 4, 6 or 8.
            frames = {"AutoencoderKLMochi": 7, "AutoencoderKLAllegro": 8}.get(self._class, 9)
            return BATCH, channels, frames, *self.size()
        return BATCH, channels, *self.size()

    def condition(self) -> tuple[int, ...]:
        """The shape of what controls a denoiser: as latents, or as pixels where the model shrinks them itself."""
        if self._value("conditioning_channels") is not None:
            blocks = len(self._value("conditioning_embedding_out_channels", default=(0, 0, 0, 0)))
            height, width = self.size()
            factor = 2 ** (blocks - 1)
            return BATCH, self._config["conditioning_channels"], height * factor, width * factor
        return self.latents()

    def text_width(self) -> int | None:
        width = self._value(*_TEXT_WIDTHS)
        if isinstance(width, (list, tuple)):
            width = width[0]
        return None if width is None else int(width)

    def follows_flow(self) -> bool:
        """Whether times are fractions of the way from noise to data, which the model itself multiplies by 1000."""
        return self._class.startswith(_FLOWS)

    def position_axes(self) -> int:
        axes = self._value("axes_dims_rope", default=(0, 0, 0))
        return max(3, len(axes))

    def has_additional_conditions(self) -> bool:
        return bool(getattr(self._model, "use_additional_conditions", False))

    def rotary_table(self) -> Any:
        """Positions as the pipeline makes them, where it and not the model does."""
        if self._class == "HunyuanDiT2DModel":
            from diffusers.models.embeddings import get_2d_rotary_pos_embed

            rows, columns = (side // self._config["patch_size"] for side in self.size())
            return get_2d_rotary_pos_embed(
                self._config["attention_head_dim"], ((0, 0), (rows, columns)), (rows, columns), output_type="pt"
            )
        if self._class == "StableAudioDiTModel":
            from diffusers.models.embeddings import get_1d_rotary_pos_embed

            length = self.latents()[-1] + 1
            return get_1d_rotary_pos_embed(
                self._config["attention_head_dim"] // 2, length, use_real=True, repeat_interleave_real=False
            )
        if self._class == "AllegroTransformer3DModel":
            from diffusers.models.embeddings import get_3d_rotary_pos_embed_allegro

            frames = FRAMES // self._config["patch_size_t"]
            rows, columns = (side // self._config["patch_size"] for side in self.size())
            table = get_3d_rotary_pos_embed_allegro(
                embed_dim=self._config["attention_head_dim"],
                crops_coords=((0, 0), (rows, columns)),
                grid_size=(rows, columns),
                temporal_size=frames,
                interpolation_scale=(1.0, 1.0, 1.0),
                device="cpu",
            )
            places = torch.cartesian_prod(*(axis.long() for axis in table[3:]))
            return table[:3], places.T.reshape(3, 1, -1).contiguous().unbind()
        return None
