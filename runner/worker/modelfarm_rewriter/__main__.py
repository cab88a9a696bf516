"""`python -m modelfarm_rewriter --socket PATH` or `--stdio`."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from modelfarm_rewriter.cache import Cache


def main() -> int:
    """Starts the rewriter."""
    parser = argparse.ArgumentParser(prog="modelfarm_rewriter", description=__doc__)
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--socket", type=Path, help="serve this Unix socket; prints 'ready PATH' when it can be used")
    how.add_argument("--stdio", action="store_true", help="answer on standard output what comes on standard input")
    parser.add_argument("--cache", type=Path, help="an existing folder that keeps rewritten programs")
    arguments = parser.parse_args()
    if arguments.cache is not None and not arguments.cache.is_dir():
        parser.error(f"--cache {arguments.cache}: expected an existing folder")

    # Imported late: a wrong option must not wait for MLIR.
    try:
        from modelfarm_rewriter.rewrite import Rewriter
        from modelfarm_rewriter.serve import converse, listen
    except ImportError as error:
        print(f"modelfarm_rewriter: {error}. It needs the Python package jaxlib", file=sys.stderr)
        return 1
    rewriter = Rewriter()
    rewriter.warm_up()
    cache = Cache(arguments.cache)
    if arguments.stdio:
        # What a library prints must not get between the answers.
        answers = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)
        converse(sys.stdin.buffer, answers, rewriter, cache)
    else:
        listen(arguments.socket, rewriter, cache)
    return 0


if __name__ == "__main__":
    sys.exit(main())
