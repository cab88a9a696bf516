"""Token ids: from the repository's tokenizer where it has a usable one, else random within the vocabulary."""

from pathlib import Path
from typing import Any

import torch

BATCH = 2
SEQUENCE_LENGTH = 16
_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
    "vocab.json",
    "spiece.model",
    "tokenizer.model",
)
# Long enough that every tokenizer makes at least SEQUENCE_LENGTH tokens of each.
_TEXTS = (
    "The farm ran every model through the accelerator before the engineers opened their mail in the morning.",
    "Seven numbers, 1 2 3 5 8 13 21, were written on the old wall beside a quiet river at the end of the town.",
)


class TextIds:
    """Makes ids for one text configuration."""

    def __init__(self, config: Any, path: Path | None, trust_remote_code: bool, embeddings: int | None = None) -> None:
        self._config = config
        self._text_config = text_config(config)
        self._path = path
        self._trust = trust_remote_code
        self._embeddings = embeddings

    def make(self, generator: torch.Generator, ragged: bool) -> tuple[list[torch.Tensor], str]:
        """A row of ids for each sample, and where they come from. Of `ragged` rows the last is a quarter shorter."""
        length = min(SEQUENCE_LENGTH, position_limit(self._text_config))
        rows = self._from_tokenizer(length, ragged)
        if rows is not None:
            return rows, "tokenizer"
        rows = list(self.random(generator, length))
        if ragged:
            rows[-1] = rows[-1][: _shorter(length)]
        # Models that pool at the end-of-sequence token need exactly one in each row, and others do not mind.
        end = _as_id(getattr(self._text_config, "eos_token_id", None))
        if end is not None and end < self.vocabulary:
            for row in rows:
                row[-1] = end
        return rows, "configuration"

    def padding_token(self, forbidden: list[int]) -> int:
        """What stands where a row has no text: the configuration's own token, else any that means nothing else here."""
        told = [_as_id(getattr(config, "pad_token_id", None)) for config in (self._text_config, self._config)]
        candidates = [token for token in told if token is not None] + list(range(self.vocabulary))
        return next((token for token in candidates if token < self.vocabulary and token not in forbidden), 0)

    def random(self, generator: torch.Generator, length: int) -> torch.Tensor:
        """Ordinary tokens only: special ones make some models do other things than computing."""
        vocabulary = self.vocabulary
        special = special_ids(self._config) | special_ids(self._text_config)
        ordinary = torch.tensor([token for token in range(vocabulary) if token not in special] or [0])
        return ordinary[torch.randint(0, len(ordinary), (BATCH, length), generator=generator)]

    @property
    def vocabulary(self) -> int:
        size = getattr(self._text_config, "vocab_size", None)
        if size is None:
            size = getattr(getattr(self._text_config, "decoder", None), "vocab_size", None)
        if not isinstance(size, int) or size < 1:
            size = self._embeddings
        if not isinstance(size, int) or size < 1:
            raise ValueError(f"{type(self._text_config).__name__} says no vocab_size, which token ids need")
        return size

    def _from_tokenizer(self, length: int, ragged: bool) -> list[torch.Tensor] | None:
        if self._path is None or not any((self._path / name).exists() for name in _TOKENIZER_FILES):
            return None
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(self._path, local_files_only=True, trust_remote_code=self._trust)
            first = tokenizer(_TEXTS[0], truncation=True, max_length=length)["input_ids"]
            # Shorter by its own rules, so that a token that ends every text ends this one too.
            limit = _shorter(len(first)) if ragged else len(first)
            rows = [first, tokenizer(_TEXTS[1], truncation=True, max_length=limit)["input_ids"][:limit]]
        except Exception as error:
            # A tokenizer that cannot be loaded says nothing about the model: any ids serve the comparison.
            print(f"tokenizer not used: {type(error).__name__}: {error}")
            return None
        shortest = min(len(row) for row in rows)
        if not ragged:
            rows = [row[:shortest] for row in rows]
        if shortest < 2 or not all(0 <= token < self.vocabulary for row in rows for token in row):
            print(f"tokenizer not used: its ids do not fit a vocabulary of {self.vocabulary}")
            return None
        return [torch.tensor(row) for row in rows]


def text_config(config: Any, *, decoder: bool = False) -> Any:
    """The configuration of what reads the text. Where an encoder and a decoder are of different kinds, that is the
    encoder, or the decoder if it is asked for."""
    if not hasattr(config, "get_text_config"):
        return config
    try:
        return config.get_text_config()
    except ValueError:
        return config.get_text_config(**{"decoder" if decoder else "encoder": True})


def position_limit(config: Any) -> int:
    """The longest sequence that the configuration allows."""
    for name in ("max_position_embeddings", "max_target_positions", "n_positions", "max_seq_len"):
        value = getattr(config, name, None)
        if isinstance(value, int) and value > 0:
            return value
    return SEQUENCE_LENGTH


def special_ids(config: Any) -> set[int]:
    """Every token id that the configuration or one inside it gives a name to."""
    found: set[int] = set()
    for name, value in vars(config).items():
        if name.endswith(("token_id", "token_index", "token_ids")):
            found.update(item for item in (value if isinstance(value, list) else [value]) if isinstance(item, int))
        elif hasattr(value, "model_type"):
            found |= special_ids(value)
    return found


def _shorter(length: int) -> int:
    return length - length // 4


def _as_id(value: Any) -> int | None:
    if isinstance(value, list) and value:
        value = value[0]
    return value if isinstance(value, int) and value >= 0 else None
