"""What the forward of a diffusers model is called with, by the names of its parameters and by its configuration.

Every argument has a rule of its own; what has none and no default is an error. Layouts differ by class: latents are
pictures, videos with their frames before or after the channels, or sequences of packed patches.
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch

from modelfarm_worker.harness.diffusion_layout import BATCH, FRAMES, TEXT, Layout
from modelfarm_worker.model import RequestError

Arguments = dict[str, Any]

# Optional parameters that are left out: caches, controls of other models, masks that change nothing.
_LEFT_OUT = {
    "attention_kwargs",
    "attention_mask",
    "block_controlnet_hidden_states",
    "controlnet_block_samples",
    "controlnet_single_block_samples",
    "cross_attention_kwargs",
    "down_block_additional_residuals",
    "down_intrablock_additional_residuals",
    "generator",
    "joint_attention_kwargs",
    "mid_block_additional_residual",
    "skip_layers",
}


def make_arguments(model: torch.nn.Module, generator: torch.Generator) -> Arguments:
    """Arguments by name, tensors and others, some nested. The values of the tensors come from the generator."""
    maker = _Maker(model, generator)
    made: Arguments = {}
    missing = []
    parameters = inspect.signature(model.forward).parameters
    for name, parameter in parameters.items():
        if name in _LEFT_OUT:
            continue
        rule: Callable[[], Any] | None = getattr(maker, name, None)
        value = rule() if rule is not None else None
        if value is not None:
            made[name] = value
        elif parameter.default is inspect.Parameter.empty and parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            missing.append(name)
    if missing:
        raise RequestError(
            f"cannot make inputs for {type(model).__name__}: its forward needs {', '.join(missing)} "
            "and no rule makes that"
        )
    if "return_dict" in parameters:
        made["return_dict"] = True
    return made


class _Maker:
    """A rule for each argument, with the argument's name."""

    def __init__(self, model: torch.nn.Module, generator: torch.Generator) -> None:
        self._layout = Layout(model)
        self._config = model.config
        self._class = type(model).__name__
        self._generator = generator

    def _normal(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=self._generator)

    def _value(self, *names: str, default: Any = None) -> Any:
        return next((self._config[name] for name in names if self._config.get(name) is not None), default)

    # Latents and pictures.

    def sample(self) -> torch.Tensor:
        return self._normal(*self._layout.latents())

    hidden_states = sample
    x = sample

    def controlnet_cond(self) -> torch.Tensor:
        return self._normal(*self._layout.condition())

    def effnet(self) -> torch.Tensor | None:
        channels = self._config.get("effnet_in_channels")
        return None if channels is None else self._normal(BATCH, channels, *self._layout.size())

    def mask(self) -> torch.Tensor | None:
        if self._class != "AsymmetricAutoencoderKL":
            return None
        return torch.randint(0, 2, (BATCH, 1, *self._layout.size()), generator=self._generator).float()

    # Times. Integers where the library counts steps, fractions where it follows a flow.

    def timestep(self) -> torch.Tensor:
        if self._layout.follows_flow():
            return torch.tensor([0.7109375, 0.1484375])
        if self._class == "HunyuanDiT2DModel":
            return torch.tensor([421.0, 87.0])  # it computes its conditions in the dtype of its times
        return torch.tensor([421, 87])

    def timestep_ratio(self) -> torch.Tensor:
        return torch.tensor([0.7109375, 0.1484375])

    def timestep_cond(self) -> torch.Tensor | None:
        width = self._value("time_cond_proj_dim")
        return None if width is None else self._normal(BATCH, width)

    def guidance(self) -> torch.Tensor | None:
        asked = self._value("guidance_embeds", "guidance_embed", default=False)
        return torch.tensor([3.5, 5.0]) if asked else None

    # Text and other conditions.

    def encoder_hidden_states(self) -> torch.Tensor | None:
        width = self._layout.text_width()
        if width is None:
            return None
        length = self._value("num_embeddings") if self._class == "PriorTransformer" else None
        if self._class == "CogVideoXTransformer3DModel":
            length = self._config["max_text_seq_length"]
        if self._class == "HunyuanDiT2DModel":
            length = self._config["text_len"]
        # A text for each frame, as its pipeline gives it.
        batch = BATCH * FRAMES if self._class == "UNetMotionModel" else BATCH
        return self._normal(batch, length or TEXT, width)

    def encoder_hidden_states_t5(self) -> torch.Tensor | None:
        width = self._value("cross_attention_dim_t5", "text_embed_dim_t5")
        return None if width is None else self._normal(BATCH, self._value("text_len_t5", default=TEXT), width)

    def encoder_hidden_states_image(self) -> torch.Tensor | None:
        width = self._value("image_dim")
        return None if width is None else self._normal(BATCH, TEXT, width)

    def _text_mask(self) -> torch.Tensor:
        """The second row is shorter: what pads it must not matter."""
        mask = torch.ones((BATCH, TEXT), dtype=torch.int64)
        mask[1, TEXT - 3 :] = 0
        return mask

    def encoder_attention_mask(self) -> torch.Tensor | None:
        if self._class.startswith("UNet") or self._class == "LatteTransformer3DModel":
            return None
        mask = self._text_mask()
        return mask.bool() if self._class in ("MochiTransformer3DModel", "Lumina2Transformer2DModel") else mask

    encoder_hidden_states_mask = encoder_attention_mask
    encoder_mask = encoder_attention_mask

    def text_embedding_mask(self) -> torch.Tensor:
        mask = torch.ones((BATCH, self._config["text_len"]), dtype=torch.int64)
        mask[1, -2:] = 0
        return mask

    def text_embedding_mask_t5(self) -> torch.Tensor:
        mask = torch.ones((BATCH, self._config["text_len_t5"]), dtype=torch.int64)
        mask[1, -2:] = 0
        return mask

    def image_meta_size(self) -> torch.Tensor | None:
        if not self._value("use_style_cond_and_image_meta_size", default=False):
            return None
        return torch.tensor([[64, 64, 64, 64, 0, 0]] * BATCH)

    def style(self) -> torch.Tensor | None:
        return torch.tensor([0, 0]) if self._value("use_style_cond_and_image_meta_size", default=False) else None

    def pooled_projections(self) -> torch.Tensor | None:
        width = self._value("pooled_projection_dim", "text_embed_2_dim")
        return None if width is None else self._normal(BATCH, width)

    def pooled_text_emb(self) -> torch.Tensor:
        return self._normal(BATCH, self._config["cond_embed_dim"])

    def micro_conds(self) -> torch.Tensor:
        return torch.tensor([[64.0, 64.0, 0.0, 0.0, 6.0]] * BATCH)

    def input_ids(self) -> torch.Tensor:
        return torch.randint(0, self._config["codebook_size"], (BATCH, *self._layout.size()), generator=self._generator)

    def proj_embedding(self) -> torch.Tensor:
        return self._normal(BATCH, self._config["embedding_dim"])

    def clip_text_pooled(self) -> torch.Tensor:
        return self._normal(BATCH, 1, self._config["clip_text_pooled_in_channels"])

    def clip_text(self) -> torch.Tensor | None:
        width = self._value("clip_text_in_channels")
        return None if width is None else self._normal(BATCH, TEXT, width)

    def clip_img(self) -> torch.Tensor | None:
        width = self._value("clip_image_in_channels")
        return None if width is None else self._normal(BATCH, 1, width)

    def global_hidden_states(self) -> torch.Tensor:
        return self._normal(BATCH, 1, self._config["global_states_input_dim"])

    def class_labels(self) -> torch.Tensor | None:
        kind = self._value("class_embed_type")
        count = self._value("num_class_embeds", "num_embeds_ada_norm")
        if self._class in ("DiTTransformer2DModel", "Transformer2DModel") and count is not None:
            return torch.tensor([1, count - 1])
        if kind in ("projection", "simple_projection"):
            return self._normal(BATCH, self._config["projection_class_embeddings_input_dim"])
        if kind == "timestep":
            return torch.tensor([3, 8])
        return None if count is None or self._class.startswith("Transformer") else torch.tensor([1, count - 1])

    def added_cond_kwargs(self) -> dict[str, Any] | None:
        if self._class == "PixArtTransformer2DModel":
            if not self._layout.has_additional_conditions():
                return {"resolution": None, "aspect_ratio": None}
            return {"resolution": torch.tensor([[64.0, 64.0]] * BATCH), "aspect_ratio": torch.tensor([[1.0]] * BATCH)}
        match self._value("addition_embed_type"):
            case "text_time":
                whole, of_time = "projection_class_embeddings_input_dim", "addition_time_embed_dim"
                pooled = self._config[whole] - 6 * self._config[of_time]
                sizes = torch.tensor([[64.0, 64.0, 0.0, 0.0, 64.0, 64.0]] * BATCH)
                return {"text_embeds": self._normal(BATCH, pooled), "time_ids": sizes}
            case "image":
                return {"image_embeds": self._normal(BATCH, self._value("encoder_hid_dim"))}
            case _:
                return None

    def added_time_ids(self) -> torch.Tensor:
        return torch.tensor([[6.0, 127.0, 0.02]] * BATCH)

    def fps(self) -> torch.Tensor | None:
        return torch.tensor([8, 12]) if self._class == "I2VGenXLUNet" else None

    def image_latents(self) -> torch.Tensor:
        return self._normal(*self._layout.latents())

    def image_embeddings(self) -> torch.Tensor:
        return self._normal(BATCH, self._config["cross_attention_dim"])

    # Positions and sizes.

    def img_ids(self) -> torch.Tensor:
        rows, columns = self._layout.size()
        places = torch.zeros((rows, columns, self._layout.position_axes()))
        places[..., 1] += torch.arange(rows)[:, None]
        places[..., 2] += torch.arange(columns)[None, :]
        places = places.flatten(0, 1)
        return places.expand(BATCH, -1, -1).clone() if self._class.startswith("Flux2") else places

    def txt_ids(self) -> torch.Tensor:
        places = torch.zeros((TEXT, self._layout.position_axes()))
        return places.expand(BATCH, -1, -1).clone() if self._class.startswith("Flux2") else places

    def img_shapes(self) -> list[Any]:
        return [[(1, *self._layout.size())] for _ in range(BATCH)]

    def original_size(self) -> torch.Tensor:
        return torch.tensor([[64.0, 64.0]] * BATCH)

    target_size = original_size

    def crop_coords(self) -> torch.Tensor:
        return torch.zeros((BATCH, 2))

    def padding_mask(self) -> torch.Tensor | None:
        return torch.zeros((1, 1, *self._layout.size())) if self._value("concat_padding_mask") else None

    def num_frames(self) -> int:
        return BATCH if self._class == "AutoencoderKLTemporalDecoder" else FRAMES

    def height(self) -> int:
        return self._layout.size()[0]

    def width(self) -> int:
        return self._layout.size()[1]

    def image_rotary_emb(self) -> Any:
        return self._layout.rotary_table()

    def rotary_embedding(self) -> Any:
        return self._layout.rotary_table()
