"""The message format between trainer and session: `!I` length, then that many bytes of JSON.

No pickle: the other side is never trusted.
"""

import json
import os
import struct
from typing import Any

HEAD = struct.Struct("!I")
MAX_ANSWER = 256 << 10
"""Bytes; a longer answer breaks the protocol."""


def pack(message: dict[str, Any]) -> bytes:
    """One message as bytes."""
    content = json.dumps(message).encode()
    return HEAD.pack(len(content)) + content


def send(fd: int, message: dict[str, Any]) -> None:
    """Write one message to a blocking descriptor."""
    rest = memoryview(pack(message))
    while rest:
        rest = rest[os.write(fd, rest) :]


def receive(fd: int) -> dict[str, Any]:
    """Read one message from a blocking descriptor.

    Raises:
        EOFError: If the other side has gone.
    """
    (length,) = HEAD.unpack(_exactly(fd, HEAD.size))
    message: dict[str, Any] = json.loads(_exactly(fd, length))
    return message


def _exactly(fd: int, count: int) -> bytes:
    parts = []
    while count:
        part = os.read(fd, min(count, 1 << 20))
        if not part:
            raise EOFError("the other side has gone")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
