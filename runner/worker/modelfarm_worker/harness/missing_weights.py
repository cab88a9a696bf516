"""Makes weights that a repository lacks an error where a library only logs them, and draws them at random."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from modelfarm_worker.model import MissingWeightsError, check_weights


@contextlib.contextmanager
def all_weights_required() -> Iterator[None]:
    """What is loaded inside must find all its weights, by `load_state_dict` or by transformers' own loading."""
    from transformers import PreTrainedModel

    by_state, by_transformers = torch.nn.Module.load_state_dict, PreTrainedModel.from_pretrained.__func__

    def load_state_dict(module: torch.nn.Module, *arguments: Any, **options: Any) -> Any:
        found = by_state(module, *arguments, **options)
        check_weights({"missing_keys": found.missing_keys})
        return found

    def from_pretrained(kind: type, *arguments: Any, **options: Any) -> Any:
        loaded, loading = by_transformers(kind, *arguments, **{**options, "output_loading_info": True})
        check_weights(loading)
        return loaded

    torch.nn.Module.load_state_dict = load_state_dict
    PreTrainedModel.from_pretrained = classmethod(from_pretrained)
    try:
        yield
    except RuntimeError as error:
        if "Missing key(s)" in str(error):
            raise MissingWeightsError(f"the repository's weights lack parameters of the model: {error}") from error
        raise
    finally:
        torch.nn.Module.load_state_dict = by_state
        PreTrainedModel.from_pretrained = classmethod(by_transformers)
