"""The message format between trainer and session: `!I` length, then that many bytes of JSON.

No pickle: the other side is never trusted.
"""

import json
import os
import struct
from typing import Any

HEAD = struct.Struct("!I")
CHUNK = 1 << 16
"""Bytes read at a time; most messages arrive in one piece."""
MAX_ANSWER = 256 << 10
"""Bytes; a longer answer violates the protocol."""


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
    content = bytearray()
    length = HEAD.size
    while len(content) < length:
        # The sender of a request waits for the answer, so there is never more than one message.
        part = os.read(fd, CHUNK)
        if not part:
            raise EOFError("the other side has gone")
        content += part
        if length == HEAD.size and len(content) >= length:
            length += HEAD.unpack_from(content)[0]
    message: dict[str, Any] = json.loads(content[HEAD.size :])
    return message
