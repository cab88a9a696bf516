"""Answering requests: one conversation on two streams, and a server that forks a process for each conversation."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
from pathlib import Path
from typing import BinaryIO

from modelfarm_rewriter.cache import Cache
from modelfarm_rewriter.protocol import ProtocolError, read_request, write_answer
from modelfarm_rewriter.rewrite import ProgramError, Rewriter


def converse(reader: BinaryIO, writer: BinaryIO, rewriter: Rewriter, cache: Cache) -> None:
    """Answers requests until the stream ends."""
    while (program := read_request(reader)) is not None:
        rewritten = cache.get(program)
        if rewritten is None:
            try:
                rewritten = rewriter.rewrite(program)
            except ProgramError as error:
                write_answer(writer, problem=str(error))
                continue
            cache.put(program, rewritten)
        write_answer(writer, rewritten=rewritten)


def listen(path: Path, rewriter: Rewriter, cache: Cache) -> None:
    """Serves a Unix socket until it is told to stop (SIGTERM or SIGINT), then removes the socket.

    Each connection gets a forked process: a program that crashes MLIR costs one conversation, and what it may have
    broken in memory ends with it.
    """
    # The kernel reaps the children.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, lambda *_: sys.exit(0))
    # One that a killed predecessor left would make bind fail.
    path.unlink(missing_ok=True)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    owner = os.getpid()
    try:
        # Made under another name and renamed, so that who finds the socket can connect to it.
        unready = path.with_name(path.name + ".new")
        unready.unlink(missing_ok=True)
        server.bind(str(unready))
        server.listen(128)
        unready.rename(path)
        print(f"ready {path}", flush=True)
        while True:
            connection, _ = server.accept()
            if os.fork() == 0:
                _child(server, connection, rewriter, cache)
            connection.close()
    finally:
        if os.getpid() == owner:
            path.unlink(missing_ok=True)


def _child(server: socket.socket, connection: socket.socket, rewriter: Rewriter, cache: Cache) -> None:
    """Holds one conversation and ends the process."""
    status = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        server.close()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError), connection.makefile("rwb") as stream:
            converse(stream, stream, rewriter, cache)
        status = 0
    except ProtocolError as error:
        print(f"modelfarm_rewriter: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(status)
