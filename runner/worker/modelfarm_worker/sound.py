"""Sounds: spectrograms and raw waves, shaped by configuration and by the layer that reads them."""

import torch

from modelfarm_worker.call import Call, find
from modelfarm_worker.text import BATCH

_WAVE_SAMPLES = 4000
# Divides by all that codecs shorten their sounds by.
_CODEC_SAMPLES = 3840
_FEATURE_FRAMES = 64
_MASKS = ("input_features_mask", "feature_attention_mask")


def add_sounds(call: Call) -> None:
    """Adds what the model hears."""
    if getattr(call.config, "audio_config", call) is None and not call.needs("input_features"):
        # It could hear, and was made without a tower to hear with.
        return
    wave = _encoder_reads(call, "input_values")
    if call.takes("input_features") and not _reads_only_text(call) and not wave:
        call.add("input_features", _features(call))
    for name in ("audio_mel", "audio_input_features"):
        if call.needs(name):
            call.add(name, _features(call))
    if call.takes("input_values") and not _optional_beside_text(call):
        call.add("input_values", _wave(call))
    _add_masks(call)


def _encoder_reads(call: Call, name: str) -> bool:
    """Whether an encoder of any kind, inside a model that takes a sound in several forms, takes it in this one."""
    encoder = getattr(call.model, "encoder", None)
    return call.takes(name) and getattr(encoder, "main_input_name", None) == name


def _reads_only_text(call: Call) -> bool:
    """A model of several modes that reads one of text and sound at a time, and text unless it is told."""
    return hasattr(call.model, "set_modality")


def _optional_beside_text(call: Call) -> bool:
    return call.takes("input_ids") and not call.needs("input_values") and call.model.main_input_name == "input_ids"


def _add_masks(call: Call) -> None:
    frames = None
    for name in ("input_features", "audio_mel", "audio_input_features"):
        if name in call.inputs:
            value = call.inputs[name]
            # The longer side, as there are more frames than bins; equal sides say the same.
            frames = value.shape[-1] if value.shape[1] == _bins(call) else value.shape[1]
    if frames is not None:
        for name in _MASKS:
            if call.takes(name) and not _thins_windows(call):
                call.add(name, torch.ones((BATCH, frames), dtype=torch.long))
        if call.takes("audio_mel_mask"):
            # Here the mask marks what is padding.
            call.add("audio_mel_mask", torch.zeros((BATCH, frames), dtype=torch.bool))
        if call.takes("audio_feature_lengths") and not any(name in call.inputs for name in _MASKS):
            call.add("audio_feature_lengths", torch.tensor([frames] * BATCH))
    if "input_values" in call.inputs:
        for name in ("padding_mask", "input_values_mask"):
            if call.needs(name):
                call.add(name, torch.ones((BATCH, call.inputs["input_values"].shape[-1]), dtype=torch.long))
    if frames is not None and call.takes("padding_mask"):
        call.add("padding_mask", torch.ones((BATCH, frames), dtype=torch.long))


def _thins_windows(call: Call) -> bool:
    """Its mask is of what a projector makes of each window, which nothing says beforehand: all of it, and no mask."""
    return call.number("downsample_rate") is not None and call.number("window_size") is not None


def _bins(call: Call) -> int:
    return (
        call.number(
            "input_feat_per_channel",
            "feature_projection_input_dim",
            "num_mel_bins",
            "input_dim",
            "n_mels",
            "input_feat_size",
            "mel_bins",
            "num_mel_filters",
            "num_chroma",
        )
        or call.number("feature_size")
        or _bins_by_layers(call)
        or 80
    )


def _bins_by_layers(call: Call) -> int | None:
    """From what is left of the bins after the convolutions that thin them, where nothing else tells."""
    strides, channels = 1, None
    for module in call.model.modules():
        if isinstance(module, torch.nn.Conv2d):
            strides, channels = strides * module.stride[-1], module.out_channels
        elif isinstance(module, torch.nn.Linear) and channels is not None:
            return module.in_features // channels * strides if module.in_features % channels == 0 else None
    return None


def _features(call: Call) -> torch.Tensor:
    """A spectrogram: (batch, bins, frames) or (batch, frames, bins), as the first layer that reads it wants."""
    fixed = call.number("max_source_positions")
    bins = _bins(call)
    if call.number("spec_size") is not None:
        # One channel; the model folds long sounds into an image of this size.
        size = call.number("spec_size") or 0
        ratio = size // bins
        return call.noise(BATCH, 1, size * ratio, bins)
    first = _reads_bins_first(call, bins)
    named = call.number("num_mel_bins") is not None and call.number("input_feat_per_channel") is None
    if fixed is not None and named and first is not False:
        # Two convolutions, the second with stride 2, stand before the encoder's positions.
        return call.noise(BATCH, bins, fixed * 2)
    window = call.number("n_window")
    frames = _FEATURE_FRAMES if window is None else 2 * window
    if call.takes("input_values") and call.number("hop_length") is not None:
        # The same sound twice: as many frames as the wave has steps.
        frames = _samples(call) // (call.number("hop_length") or 1)
    bins *= call.number("num_stacked_frames") or (1 if call.number("subsampling_factor") else _stacked(call, bins))
    if call.takes("noise_sequence") or call.number("input_feat_per_channel") is not None:
        # It turns the spectrogram itself.
        first = False
    if window is not None:
        # Cut into windows along its last side.
        first = True
    return call.noise(BATCH, bins, frames) if first else call.noise(BATCH, frames, bins)


def _stacked(call: Call, bins: int) -> int:
    """How many frames one place holds, by the width of the very first layer."""
    for module in call.model.modules():
        if isinstance(module, torch.nn.Linear):
            return module.in_features // bins if module.in_features % bins == 0 and call.takes("input_features") else 1
        if isinstance(module, torch.nn.Conv1d | torch.nn.Conv2d | torch.nn.Embedding):
            return 1
    return 1


def _reads_bins_first(call: Call, bins: int) -> bool | None:
    """By the first layer that fits the number of bins; `None` where none does."""
    heard = [
        (name, module)
        for name, module in call.model.named_modules()
        if any(word in name.lower() for word in ("audio", "speech", "sound", "encoder", "conditioning"))
    ]
    for modules in (heard, list(call.model.named_modules())):
        for _, module in modules:
            if isinstance(module, torch.nn.Conv1d) and module.in_channels == bins:
                return True
            if isinstance(module, torch.nn.Linear) and module.in_features == bins:
                return False
            if isinstance(module, torch.nn.LayerNorm) and module.normalized_shape[0] == bins:
                return False
            if isinstance(module, torch.nn.Conv2d) and module.in_channels == 1:
                # Bins and time stand where a picture has its sides; the library puts time first, Whisper's kin do not.
                return None if find(call.config, "max_source_positions") is not None else False
    return None


def _wave(call: Call) -> torch.Tensor:
    """A raw sound (batch, samples), or with a channel or a spectrogram where the configuration says so."""
    frames, bins = call.number("max_length"), call.number("num_mel_bins")
    if frames is not None and bins is not None and find(call.config, "frequency_stride") is not None:
        return call.noise(BATCH, frames, bins)
    channels = call.number("audio_channels", "channels")
    if channels is None and _reads_a_channel(call):
        channels = 1
    if channels is not None:
        return call.noise(BATCH, channels, _samples(call))
    wave = call.noise(BATCH, _samples(call))
    return wave if _extracts_features(call) else _accepted(call, wave)


def _extracts_features(call: Call) -> bool:
    """The kin of Wav2Vec2, which take sounds without a channel."""
    return any(name.endswith("feature_extractor") for name, _ in call.model.named_modules())


def _accepted(call: Call, wave: torch.Tensor) -> torch.Tensor:
    """With a channel where the model cannot read the sound without one."""
    dtype = next(call.model.parameters()).dtype
    for layout in (wave, wave[:, None]):
        try:
            with torch.no_grad():
                call.model(input_values=layout.to(dtype))
            return layout
        except (RuntimeError, ValueError, TypeError, IndexError):
            continue
    # Not to be tried without the rest of its inputs.
    return wave[:, None] if call.takes("padding_mask") or call.takes("output_latents") else wave


def _samples(call: Call) -> int:
    """Whole frames of the coarsest step that the configuration tells."""
    if _extracts_features(call):
        return _WAVE_SAMPLES
    hop = call.number("hop_length")
    return _CODEC_SAMPLES if hop is None or hop > _CODEC_SAMPLES else _CODEC_SAMPLES // hop * hop


def _reads_a_channel(call: Call) -> bool:
    """A codec whose first layer is a convolution over one channel, without anyone to add that channel."""
    return any(name in call.parameters for name in ("bandwidth", "audio_codes", "n_quantizers", "quantizer"))


def audio_token_ids(call: Call) -> list[int]:
    """The tokens that stand for one sound in the text, where the model wants them there."""
    token = call.number("audio_token_id", "audio_token_index")
    if token is None or not ({"input_features", "input_values"} & call.inputs.keys()):
        return []
    try:
        count = call.features("get_audio_features")
    except (TypeError, AttributeError):
        # It wants to know the text, or more of the sound than is known here.
        count = None
    # Where nothing tells, the model itself makes one token into as many as it needs.
    return [token] * (count or 1)
