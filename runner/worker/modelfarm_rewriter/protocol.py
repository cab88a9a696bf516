"""The frames between the interposer and the rewriter.

A request is `MFR1`, the length of the program as a little-endian u64, and the program. The answer is `MFR1`, one status
byte (0: a program follows, 1: a reason why not follows), the length likewise, and that.
"""

from __future__ import annotations

import struct
from typing import BinaryIO

MAGIC = b"MFR1"
MAX_PROGRAM_BYTES = 1 << 30
_REQUEST = struct.Struct("<4sQ")
_ANSWER = struct.Struct("<4sBQ")


class ProtocolError(Exception):
    """The other side does not speak this protocol."""


def read_request(stream: BinaryIO) -> bytes | None:
    """Reads one program; None at the end of the stream."""
    head = stream.read(_REQUEST.size)
    if not head:
        return None
    if len(head) < _REQUEST.size:
        raise ProtocolError("the stream ended in the middle of a request")
    magic, length = _REQUEST.unpack(head)
    if magic != MAGIC or length > MAX_PROGRAM_BYTES:
        raise ProtocolError("a request does not start with MFR1 and a length of at most 1 GiB")
    program = stream.read(length)
    if len(program) < length:
        raise ProtocolError("the stream ended in the middle of a program")
    return program


def write_answer(stream: BinaryIO, *, rewritten: bytes | None = None, problem: str = "") -> None:
    """Answers with a program, or with the reason why there is none."""
    status, body = (0, rewritten) if rewritten is not None else (1, problem.encode())
    stream.write(_ANSWER.pack(MAGIC, status, len(body)))
    stream.write(body)
    stream.flush()
