"""Rewritten programs by the content of the original: in memory, and in a folder that several processes may share."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

_MEMORY_ENTRIES = 256


class Cache:
    """Looks programs up by their SHA-256. A folder that cannot be written costs time, never a program."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._memory: dict[str, bytes] = {}

    def get(self, program: bytes) -> bytes | None:
        """The rewritten form of a program, if it is known."""
        key = hashlib.sha256(program).hexdigest()
        if key in self._memory:
            return self._memory[key]
        if self._folder is None:
            return None
        try:
            rewritten = (self._folder / key).read_bytes()
        except OSError:
            return None
        self._remember(key, rewritten)
        return rewritten

    def put(self, program: bytes, rewritten: bytes) -> None:
        """Keeps the rewritten form of a program."""
        key = hashlib.sha256(program).hexdigest()
        self._remember(key, rewritten)
        if self._folder is None:
            return
        try:
            # Written aside and renamed: a reader sees the whole file or none.
            with tempfile.NamedTemporaryFile(dir=self._folder, delete=False) as file:
                file.write(rewritten)
            Path(file.name).replace(self._folder / key)
        except OSError:
            return

    def _remember(self, key: str, rewritten: bytes) -> None:
        while len(self._memory) >= _MEMORY_ENTRIES:
            del self._memory[next(iter(self._memory))]
        self._memory[key] = rewritten
