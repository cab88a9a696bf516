"""A state folder in which nothing was computed yet, and what a run in it came to."""

import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class FreshState:
    """A program and a state folder with another one's environments and fixtures, and no reference, program or result."""

    def __init__(self, program: Path, folder: Path) -> None:
        self.program = program
        self.folder = folder

    def run(self, *arguments: object) -> int:
        """Runs `modelfarm run`; returns its exit code."""
        command = [self.program, "--state-dir", self.folder, "run", *map(str, arguments)]
        return subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode

    def query(self, *arguments: str) -> list[dict]:
        command = [self.program, "--state-dir", self.folder, "query", *arguments, "--format", "json"]
        return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)

    def results(self) -> list[dict]:
        return self.query("results", "--run", "latest")


@contextmanager
def fresh_state(program: Path, state: Path) -> Iterator[FreshState]:
    with tempfile.TemporaryDirectory(prefix="fresh-state-") as folder:
        for shared in ("environments", "fixtures"):
            (Path(folder) / shared).symlink_to(state / shared)
        yield FreshState(program, Path(folder))
