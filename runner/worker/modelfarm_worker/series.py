"""Time series and trajectories: what forecasters and decision makers take."""

import torch

from modelfarm_worker.call import Call, find
from modelfarm_worker.text import BATCH

_LENGTH = 32


def add_series(call: Call) -> None:
    """Adds the past of a time series, or a trajectory of states and actions."""
    if call.needs("past_values"):
        _add_past(call)
    if {"states", "actions", "returns_to_go", "timesteps"} <= call.parameters.keys():
        _add_trajectory(call)


def _add_past(call: Call) -> None:
    context = call.number("context_length") or _LENGTH
    lags = find(call.config, "lags_sequence") or [0]
    length = context + (max(lags) if call.takes("past_time_features") else 0)
    channels = call.number("num_input_channels", "input_size") or 1
    many = channels > 1 or call.number("num_input_channels") is not None
    call.add("past_values", call.noise(BATCH, length, channels) if many else call.noise(BATCH, length))
    shape = tuple(call.inputs["past_values"].shape)
    if call.needs("past_observed_mask"):
        call.add("past_observed_mask", torch.ones(shape))
    if call.takes("past_values_padding"):
        call.add("past_values_padding", torch.zeros(shape, dtype=torch.long))
    if call.takes("freq"):
        call.add("freq", torch.zeros((BATCH, 1), dtype=torch.long))
    if call.takes("past_time_features"):
        features = call.number("num_time_features") or 0
        ahead = call.number("prediction_length") or 1
        call.add("past_time_features", call.noise(BATCH, length, features))
        call.add("future_time_features", call.noise(BATCH, ahead, features))
        call.add("future_values", call.noise(BATCH, ahead, channels) if many else call.noise(BATCH, ahead))


def _add_trajectory(call: Call) -> None:
    steps = 8
    call.add("states", call.noise(BATCH, steps, call.number("state_dim") or 1))
    call.add("actions", call.noise(BATCH, steps, call.number("act_dim") or 1))
    call.add("rewards", call.noise(BATCH, steps, 1))
    call.add("returns_to_go", call.noise(BATCH, steps, 1))
    call.add("timesteps", torch.arange(steps).expand(BATCH, -1).clone())
    call.add("attention_mask", torch.ones((BATCH, steps), dtype=torch.long))
