"""The message format between trainer and session: a JSON head, then raw bytes.

`!I` length of the head, the head (whose `blobs` lists the byte counts of what follows), then the blobs. No
pickle: the other side is never trusted.
"""

import json
import os
import struct
from collections.abc import Sequence
from typing import Any

HEAD = struct.Struct("!I")
MAX_HEAD = 1 << 20
"""Bytes; a longer head breaks the protocol."""


def pack(message: dict[str, Any], blobs: Sequence[bytes] = ()) -> bytes:
    """One message as bytes."""
    head = json.dumps({**message, "blobs": [len(blob) for blob in blobs]}).encode()
    return b"".join([HEAD.pack(len(head)), head, *blobs])


def send(fd: int, message: dict[str, Any], blobs: Sequence[bytes] = ()) -> None:
    """Write one message to a blocking descriptor."""
    rest = memoryview(pack(message, blobs))
    while rest:
        rest = rest[os.write(fd, rest) :]


def receive(fd: int) -> dict[str, Any]:
    """Read one message without blobs from a blocking descriptor.

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
