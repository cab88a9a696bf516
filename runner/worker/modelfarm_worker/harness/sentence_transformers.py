"""Models of sentence-transformers: encoders of sentences, through all modules of `modules.json`, and cross-encoders."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from modelfarm_worker.harness.missing_weights import all_weights_required
from modelfarm_worker.harness.plain_attention import choose_attention
from modelfarm_worker.model import RequestError, UnsafeWeightsError, UntrustedCodeError

_OWN_MODULES = "sentence_transformers."
_MAX_TOKENS = 64
# Of different lengths, so that one row is padded.
_SENTENCES = (
    "The farm ran every model through the accelerator before the engineers opened their mail.",
    "A quiet river flows past the old wall.",
)
_QUESTION = "Which machine ran the models?"


class SentenceEmbedder(torch.nn.Module):
    """Token ids to one vector a sentence, as `SentenceTransformer.encode` makes it."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, **features: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"sentence_embedding": self.model(dict(features))["sentence_embedding"]}


class PairScorer(torch.nn.Module):
    """Token ids of pairs to scores, as `CrossEncoder.predict` makes them."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        self.activation = model.activation_fn

    def forward(self, **features: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"scores": self.activation(self.model(dict(features))["scores"])}


def load(model: dict[str, Any], dtype: torch.dtype, attention: str | None, seed: int) -> torch.nn.Module:
    """The model of a folder, in evaluation mode, with every one of its weights."""
    import sentence_transformers

    path, trust = Path(model["path"]), model["trust_remote_code"] is True
    wrappers = {"SentenceTransformer": SentenceEmbedder, "CrossEncoder": PairScorer}
    if model["class"] not in wrappers:
        raise RequestError(f"unknown class {model['class']!r}: expected one of {', '.join(wrappers)}")
    if model["weights"] != "real":
        raise RequestError(f"sentence-transformers knows real weights only, not {model['weights']!r}")
    _check_modules(path, trust)
    _check_safe(path)
    choose_attention(attention)
    options: dict[str, Any] = {"dtype": dtype, "use_safetensors": True}
    if attention is not None:
        options["attn_implementation"] = attention
    torch.manual_seed(seed)
    with _own_code_named(), all_weights_required():
        loaded = getattr(sentence_transformers, model["class"])(
            str(path), device="cpu", local_files_only=True, trust_remote_code=trust, model_kwargs=options
        )
    return wrappers[model["class"]](loaded.to(dtype)).eval()


def make_inputs(
    model: torch.nn.Module, request_model: dict[str, Any], workload: str, profile: str, seed: int
) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Two sentences, or a question with each, by the model's own tokenizer. They are the same for every seed."""
    rows = [(_QUESTION, text) for text in _SENTENCES] if isinstance(model, PairScorer) else list(_SENTENCES)
    longest = model.model.max_seq_length
    if longest is None or longest > _MAX_TOKENS:
        model.model.max_seq_length = _MAX_TOKENS
    features = model.model.preprocess(rows)
    inputs = {name: value for name, value in features.items() if isinstance(value, torch.Tensor)}
    return inputs, dict.fromkeys(inputs, "tokenizer")


def _check_modules(path: Path, trust: bool) -> None:
    file = path / "modules.json"
    if trust or not file.exists():
        return
    for module in json.loads(file.read_text()):
        if not str(module.get("type")).startswith(_OWN_MODULES):
            raise UntrustedCodeError(
                f"modules.json asks for {str(module.get('type'))[:200]!r}, which is not the library's own code and not "
                "trusted: trust this repository at this commit in the matrix to run it"
            )


def _check_safe(path: Path) -> None:
    """The library takes pickled weights of its modules where there are no others."""
    for folder in {file.parent for file in path.rglob("*.bin")}:
        if not any(folder.glob("*.safetensors")):
            raise UnsafeWeightsError(f"{folder.relative_to(path)!s} has weights in PyTorch's own format only")


@contextlib.contextmanager
def _own_code_named() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        if "trust_remote_code" in str(error):
            raise UntrustedCodeError(
                "the repository's configuration is code of its own, which is not trusted: "
                "trust this repository at this commit in the matrix to run it"
            ) from error
        raise
