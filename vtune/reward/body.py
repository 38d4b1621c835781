"""Request bodies, read within memory limits and parsed without holding up other requests.

Python's JSON parser holds the interpreter lock until it is done, even in a thread. So anything that could
take long is counted first, which is fast, and refused.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from starlette.types import Receive

from vtune.errors import DataError, ServiceError
from vtune.reward.while_connected import while_connected

ELEMENTS = 300_000
"""Limit on values in one JSON text; ours: twice what a thousand trajectories with four calls each have. This
many lists are parsed in a tenth of a second."""

DEPTH = 48
"""Limit on the nesting of lists and objects; ours: the box of a crop of a call of an item is 10 deep."""

SMALL_BYTES, SMALL_ELEMENTS = 2**20, 2_500
"""Bodies up to this size are parsed on the event loop, in milliseconds; ours: a thread costs as much."""

MARKS = 20 * ELEMENTS
"""Limit on commas and opening brackets in one body, including those in strings; ours. Beyond it, the rest of
the body is refused before it is received."""

HELD = 2**30
"""Limit on the total bytes of all bodies being received or scored; ours. Less would turn away 64 clients with
8 MiB of pictures each."""

FEWER = "send less in one request"

T = TypeVar("T")


class Busy(ServiceError):
    """There is no room now; retrying later may work."""


class TooMuch(DataError):
    """A body that is refused before all of it has arrived."""


class Bodies:
    """Reads the bodies of requests to one service."""

    def __init__(self, *, held: int = HELD) -> None:
        """Create a reader that has read nothing yet.

        Args:
            held: Limit on the total bytes of all bodies at a time.
        """
        self._held = 0
        self._most = held
        self._large = asyncio.Semaphore(1)

    async def read(self, receive: Receive, answer: Callable[[bytes], Awaitable[T]]) -> T | None:
        """Answer a body once it has arrived; None if the client disconnects, which cancels the answer.

        Raises:
            Busy: If too many bytes are held already; the rest of the body stays unread.
            TooMuch: If it cannot be a valid request; the rest stays unread, too.
        """
        parts: list[bytes] = []
        size = marks = 0
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                self._held += len(parts[-1])
                if self._held > self._most:
                    raise Busy(f"more than {self._most} bytes of requests are pending", fix="ask again later")
                marks += _count(parts[-1])
                if marks > MARKS:
                    raise TooMuch(f"the JSON has more than {ELEMENTS} values", fix=FEWER)
                if not message.get("more_body"):
                    body = parts[0] if len(parts) == 1 else b"".join(parts)
                    return await while_connected(receive, answer(body))
        finally:
            self._held -= size

    async def parse(self, body: bytes, read: Callable[[Any], T]) -> T:
        """The result of `read` for a JSON body; large ones are parsed and read in a thread, one at a time.

        Args:
            body: As received.
            read: Converts the parsed value; must depend on nothing else.

        Raises:
            DataError: If it is not JSON, or too large, and whatever `read` raises.
        """
        if len(body) <= SMALL_BYTES and _count(body) <= SMALL_ELEMENTS:
            return read(parse_json(body))
        async with self._large:
            return await asyncio.to_thread(lambda: read(parse_json(body)))


def parse_json(body: bytes) -> Any:
    """The value of a JSON text in UTF-8.

    Raises:
        DataError: If it is not JSON, holds NaN or Infinity, a key twice in one object, more than `ELEMENTS`
            values, or more than `DEPTH` levels of lists and objects.
    """
    check_structure(body)
    try:
        return json.loads(body.decode(), parse_constant=_no_number, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:  # from json, and from text that is not UTF-8
        raise DataError(f"the request is not JSON: {error}", fix="send a JSON object") from None


def check_structure(body: bytes) -> None:
    """Check that a JSON text parses in negligible time, and that reading its value cannot exhaust the stack.

    Raises:
        DataError: If it has more than `ELEMENTS` values, or more than `DEPTH` levels of nesting.
    """
    openers = body.count(b"[") + body.count(b"{")
    if openers <= DEPTH and _count(body) <= ELEMENTS:
        return
    # Only what is outside strings counts.
    quotes = body.count(b'"')
    if quotes > 4 * ELEMENTS and quotes - body.count(b'\\"') > 4 * ELEMENTS:
        raise _too_many()
    bare = b"".join(body.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')[::2])
    if _count(bare) > ELEMENTS:
        raise _too_many()
    if bare.count(b"[") + bare.count(b"{") > DEPTH and _is_too_deep(bare):
        raise DataError(
            f"the JSON has more than {DEPTH} levels of lists and objects", fix="send plain values"
        )


def _count(body: bytes) -> int:
    """Upper bound on the number of values in a JSON text."""
    return body.count(b",") + body.count(b"[") + body.count(b"{")


def _is_too_deep(bare: bytes) -> bool:
    """Whether brackets are nested too deeply, up to the first unmatched closing one (then it is not JSON)."""
    depth = 0
    for mark in bare.translate(None, delete=_NO_BRACKETS):
        depth += 1 if mark in b"[{" else -1
        if not 0 <= depth <= DEPTH:
            return depth > DEPTH
    return False


_NO_BRACKETS = bytes(code for code in range(256) if chr(code) not in "[]{}")


def _too_many() -> DataError:
    return DataError(f"the JSON has more than {ELEMENTS} values", fix=FEWER)


def _no_number(name: str) -> Any:
    raise DataError(f"the JSON holds {name}, which is not a JSON number", fix="send null, or a number")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        # Counted in one pass: calling count() for each of 300,000 keys would take an hour.
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise DataError(f"an object has the key {twice!r:.60} twice", fix="send it once")
    return found
