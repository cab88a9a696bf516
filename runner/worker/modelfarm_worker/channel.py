"""Line JSON over a Unix stream socket, with file descriptors where a message brings them."""

import json
import os
import socket
from collections import deque
from typing import Any

MAX_LINE_BYTES = 8 * 1024 * 1024
_CHUNK_BYTES = 1 << 16
_MAX_DESCRIPTORS_A_READ = 64


class ProtocolError(Exception):
    """The other side said something that the protocol does not allow."""


class ChannelEnded(Exception):
    """The other side closed the channel between two messages."""


class Channel:
    """One end of a socket on which each message is one JSON object on one line."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._pending = bytearray()
        self._lines: deque[bytes] = deque()
        self._descriptors: deque[int] = deque()
        self.ended = False

    def fileno(self) -> int:
        return self._connection.fileno()

    def send(self, message: dict[str, Any]) -> None:
        """Sends one message. Text that is not valid Unicode is replaced, never sent as it is."""
        # ensure_ascii turns a lone surrogate into an escape that strict readers refuse: remove those first.
        text = json.dumps(message, ensure_ascii=False, allow_nan=False, default=str)
        line = text.encode("utf-8", "replace") + b"\n"
        if len(line) > MAX_LINE_BYTES:
            raise ProtocolError(f"a message of {len(line)} bytes exceeds the {MAX_LINE_BYTES} that a line may have")
        self._connection.sendall(line)

    def read_available(self) -> None:
        """Takes in what one read brings; blocks until there is something. Sets `ended` at the end of file."""
        data, descriptors, flags, _ = socket.recv_fds(
            self._connection, _CHUNK_BYTES, _MAX_DESCRIPTORS_A_READ, socket.MSG_CMSG_CLOEXEC
        )
        self._descriptors.extend(descriptors)
        if flags & socket.MSG_CTRUNC:
            raise ProtocolError(f"more than {_MAX_DESCRIPTORS_A_READ} file descriptors came with one message")
        if not data:
            self.ended = True
            if self._pending:
                raise ProtocolError(f"the stream ended inside a line, after {bytes(self._pending[:80])!r}")
            return
        *complete, rest = (bytes(self._pending) + data).split(b"\n")
        self._lines.extend(complete)
        self._pending = bytearray(rest)
        if len(self._pending) > MAX_LINE_BYTES:
            raise ProtocolError(f"a line exceeds {MAX_LINE_BYTES} bytes")

    def next_message(self) -> dict[str, Any] | None:
        """The next message that is already here, or None."""
        if not self._lines:
            return None
        line = self._lines.popleft()
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"expected a JSON object on a line, got {line[:80]!r} ({error})") from None
        if not isinstance(message, dict):
            raise ProtocolError(f"expected a JSON object on a line, got {line[:80]!r}")
        return message

    def wait_message(self) -> dict[str, Any]:
        """Blocks until a message is here."""
        while True:
            message = self.next_message()
            if message is not None:
                return message
            if self.ended:
                raise ChannelEnded("the farm closed the channel while a message was awaited")
            self.read_available()

    def take_descriptors(self, count: int) -> list[int]:
        """The next `count` file descriptors that came with messages."""
        if len(self._descriptors) < count:
            raise ProtocolError(f"expected {count} file descriptors with the message, got {len(self._descriptors)}")
        return [self._descriptors.popleft() for _ in range(count)]

    def close(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.popleft())
        self._connection.close()
