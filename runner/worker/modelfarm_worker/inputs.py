"""The inputs that a model is called with: deterministic from the seed, the same for every mode and target."""

from pathlib import Path
from typing import Any

import torch

from modelfarm_worker.arguments import add_other_arguments
from modelfarm_worker.call import Call, find_number, is_required
from modelfarm_worker.labels import make_labels
from modelfarm_worker.media import add_images_and_videos, image_token_ids
from modelfarm_worker.model import RequestError
from modelfarm_worker.padding import is_padded, pads_left, stack
from modelfarm_worker.series import add_series
from modelfarm_worker.sound import add_sounds, audio_token_ids
from modelfarm_worker.text import SEQUENCE_LENGTH, TextIds, position_limit

# What `mm_token_type_ids` says of a token.
_IMAGE, _AUDIO = 1, 3


class InputsError(RequestError):
    """No inputs can be derived for this model's forward."""


def make_inputs(
    model: torch.nn.Module, request_model: dict[str, Any], workload: str, profile: str, seed: int
) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """The inputs by argument name, and for each where it comes from."""
    if profile != "default":
        raise RequestError(f"unknown input profile {profile!r}: expected default")
    path = Path(request_model["path"])
    trust = request_model["trust_remote_code"] is True
    call = Call(model, path, trust, torch.Generator().manual_seed(seed))
    add_images_and_videos(call)
    add_sounds(call)
    add_series(call)
    if call.takes("input_ids") and not (
        model.main_input_name != "input_ids"
        and call.takes("decoder_input_ids")
        and getattr(model.config, "is_encoder_decoder", False)
    ):
        _add_text(call, workload)
    add_other_arguments(call)
    if (
        call.takes("decoder_input_ids")
        and (getattr(model.config, "is_encoder_decoder", False) or call.needs("decoder_input_ids"))
        and workload != "generate"
    ):
        call.add("decoder_input_ids", _decoder_ids(call))
    if workload == "train-step":
        for name, value in make_labels(model, call.parameters, call.inputs, call.generator).items():
            call.add(name, value)
    missing = [
        name for name, parameter in call.parameters.items() if is_required(parameter) and name not in call.inputs
    ]
    if (missing and workload != "generate") or not call.inputs:
        raise InputsError(
            f"cannot make inputs for {type(model).__name__}: its forward needs {', '.join(missing) or 'something'} "
            "and no rule makes that"
        )
    return call.inputs, call.sources


def _add_text(call: Call, workload: str) -> None:
    text = TextIds(call.config, call.path, call.trust, _embeddings(call))
    codebooks = _codebooks(call)
    rows, source = text.make(call.generator, ragged=is_padded(call) and codebooks is None)
    if call.takes("num_delay_tokens"):
        # Text and sound run side by side.
        places = call.features("get_audio_features")
        rows = [row[:places] for row in rows] if places else rows
    block = image_token_ids(call) + audio_token_ids(call)
    if block:
        rows = [torch.cat([row[:1], torch.tensor(block), row[1:]]) for row in rows]
    ids, mask = stack(rows, text.padding_token(block), pads_left(call, workload))
    if block:
        kinds = torch.zeros_like(ids)
        for token, kind in ((_token(call, "image"), _IMAGE), (_token(call, "audio"), _AUDIO)):
            if token is not None:
                kinds[ids == token] = kind
        for name in ("mm_token_type_ids", "token_type_ids", "moe_mm_token_type_ids"):
            if call.takes(name):
                call.add(name, kinds)
    if codebooks:
        # One column of the text and one for each codebook of the sound.
        ids = torch.stack([text.random(call.generator, ids.shape[1]) for _ in range(codebooks)], dim=-1)
    call.add("input_ids", ids, source)
    if call.takes("attention_mask"):
        call.add("attention_mask", mask, source)
    if call.takes("bbox"):
        corner = torch.randint(0, 500, (*ids.shape, 2), generator=call.generator)
        # No box where there is no text.
        call.add("bbox", torch.cat([corner, corner + 100], dim=-1) * mask[..., None])


def _token(call: Call, kind: str) -> int | None:
    return find_number(call.config, f"{kind}_token_id", f"{kind}_token_index")


def _codebooks(call: Call) -> int | None:
    """How many columns of codes the embeddings are made for, where they are made for several."""
    for name, value in call.model.named_buffers():
        if name.endswith("audio_tokens_offsets") and not call.takes("audio_input_ids"):
            return value.numel()
    return call.number("num_codebooks") if hasattr(call.model, "depth_decoder") else None


def _embeddings(call: Call) -> int | None:
    """How many tokens the model has embeddings for, where its configuration does not say."""
    try:
        return call.model.get_input_embeddings().num_embeddings
    except (AttributeError, NotImplementedError, TypeError):
        return call.number("vocab_size", "num_hash_buckets")


def _decoder_ids(call: Call) -> torch.Tensor:
    """Starts with the decoder's start token, as a label that was shifted right does."""
    config = call.config
    decoder = getattr(config, "decoder", None) or config
    text = TextIds(decoder, None, False, _embeddings(call))
    length = min(SEQUENCE_LENGTH, position_limit(decoder))
    ids = text.random(call.generator, length)
    start = find_number(config, "decoder_start_token_id", "bos_token_id", "pad_token_id")
    if start is not None and 0 <= start < text.vocabulary:
        ids[:, 0] = start
    codebooks = find_number(decoder, "num_codebooks")
    if codebooks:
        # A row for each codebook of each sample.
        ids = text.random(call.generator, length).repeat_interleave(codebooks, dim=0)
        return (ids + torch.arange(len(ids))[:, None]) % text.vocabulary
    channels = find_number(config, "num_channels")
    if find_number(config, "delay_pattern") is None and hasattr(config, "delay_pattern") and channels:
        # A decoder of sound writes one column of codes for each channel.
        return ids[..., None].expand(-1, -1, channels).clone()
    return ids


def convert_floating(inputs: dict[str, torch.Tensor], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Floating leaves in `dtype`, integer leaves as they are."""
    return {name: value.to(dtype) if value.is_floating_point() else value for name, value in inputs.items()}
