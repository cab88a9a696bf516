"""The other arguments that some models cannot do without, each by its name."""

from collections.abc import Callable

import torch

from modelfarm_worker.call import Call, find
from modelfarm_worker.text import BATCH, SEQUENCE_LENGTH

# Arguments with a default of None that their model reads all the same.
_ALWAYS = {
    "visual_feats",
    "visual_pos",
    "image_embeds_position_mask",
    "decoder_input_values",
    "noise_sequence",
    "lang_ids",
    "high_res_pixel_values",
}


def add_other_arguments(call: Call) -> None:
    """Adds what the forward still needs and a rule here knows."""
    for name in call.parameters:
        if name in call.inputs:
            continue
        if (call.needs(name) or name in _ALWAYS or name in _beside(call)) and name in _MAKERS:
            made = _MAKERS[name](call)
            if made is not None:
                call.add(name, made)


def _beside(call: Call) -> tuple[str, ...]:
    """What a model of queries looks at."""
    return ("encoder_hidden_states",) if call.takes("query_embeds") else ()


def _hidden(call: Call) -> int:
    return call.number("hidden_size", "d_model", "n_embd", "dim") or 1


def _ids(call: Call) -> torch.Tensor:
    return call.ids(call.number("vocab_size") or 100, BATCH, SEQUENCE_LENGTH)


def _mask(call: Call) -> torch.Tensor:
    return torch.ones((BATCH, SEQUENCE_LENGTH), dtype=torch.long)


def _embeds(call: Call) -> torch.Tensor:
    return call.noise(BATCH, SEQUENCE_LENGTH, _hidden(call))


def _first_channels(call: Call) -> int | None:
    """The channels that a stack of convolutions over time starts with; `None` for any other model."""
    for module in call.model.modules():
        if isinstance(module, torch.nn.Conv1d):
            return module.in_channels
        if isinstance(module, torch.nn.Linear | torch.nn.Embedding | torch.nn.Conv2d | torch.nn.Conv3d):
            return None
    return None


def _states(call: Call) -> torch.Tensor:
    return _embeds(call) if _first_channels(call) is None else _latents(call)


def _image_places(call: Call) -> torch.Tensor | None:
    """Which places of the text an image takes: as many as the model makes features of it, after the first."""
    if "input_ids" not in call.inputs:
        return None
    places = torch.zeros_like(call.inputs["input_ids"])
    count = call.number("latent_query_num") or 1
    mask = call.inputs.get("attention_mask")
    for row, place in enumerate(places):
        begin = 0 if mask is None else int(mask[row].argmax())
        place[begin + 1 : begin + 1 + count] = 1
    return places


def _latents(call: Call) -> torch.Tensor:
    channels = _first_channels(call)
    if channels is not None:
        return call.noise(BATCH, channels, 6400 if channels == 1 else 8)
    return call.noise(BATCH, call.number("hidden_size", "latent_dim", "codebook_dim") or 1, SEQUENCE_LENGTH)


_MAKERS: dict[str, Callable[[Call], torch.Tensor | None]] = {
    "inputs_embeds": _embeds,
    "query_embeds": lambda call: call.noise(BATCH, 8, _hidden(call)),
    "encoder_hidden_states": lambda call: call.noise(
        BATCH, SEQUENCE_LENGTH, call.number("encoder_hidden_size") or _hidden(call)
    ),
    "hidden_states": _states,
    "noise_embeds": _embeds,
    "context_hidden_states": _embeds,
    "latents": _latents,
    "qformer_input_ids": _ids,
    "qformer_attention_mask": _mask,
    "task_inputs": lambda call: call.ids(
        call.number("text_encoder_vocab_size", "vocab_size") or 100, BATCH, call.number("task_seq_len") or 77
    ),
    "inputs": lambda call: call.noise(BATCH, SEQUENCE_LENGTH, call.number("d_model") or 1),
    "image_embeds_position_mask": _image_places,
    "visual_feats": lambda call: call.noise(BATCH, 6, call.number("visual_feat_dim") or 1),
    "visual_pos": lambda call: torch.rand((BATCH, 6, call.number("visual_pos_dim") or 4), generator=call.generator),
    "decoder_input_values": lambda call: call.noise(BATCH, 8, call.number("num_mel_bins") or 80),
    "noise_sequence": lambda call: call.noise(
        BATCH,
        call.inputs["input_features"].shape[1] if "input_features" in call.inputs else 8,
        call.number("model_in_channels") or 64,
    ),
    "action_embeds": lambda call: call.noise(BATCH, call.number("chunk_size") or 8, _action_width(call)),
    "prompt_pixel_values": lambda call: call.noise(*call.inputs["pixel_values"].shape),
    "prompt_masks": lambda call: call.noise(*call.inputs["pixel_values"].shape),
    "pixel_mask": lambda call: torch.ones((BATCH, *call.inputs["pixel_values"].shape[-2:]), dtype=torch.long),
    "classes_input_ids": lambda call: call.ids(_words(call), 4, 6),
    "classes_attention_mask": lambda call: torch.ones((4, 6), dtype=torch.long),
    "tasks_input_ids": lambda call: call.ids(_words(call), BATCH, 6),
    "tasks_attention_mask": lambda call: torch.ones((BATCH, 6), dtype=torch.long),
    "classes_structure": lambda call: torch.tensor([2, 2]),
    "lang_ids": lambda call: torch.zeros(BATCH, dtype=torch.long) if find(call.config, "languages") else None,
}


def _words(call: Call) -> int:
    return call.number("vocab_size") or 100


def _action_width(call: Call) -> int:
    dit = find(call.config, "dit_config", "expert_config", "action_expert_config")
    return getattr(dit, "hidden_size", None) or _hidden(call)
