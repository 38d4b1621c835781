"""Connections to reward servers: HTTP/1.1, kept open, one request after another on each.

A request costs a tenth of what a general client takes for it, and most of a run's requests are small.
"""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import urlsplit

import httptools

CONNECT = 5.0
"""Seconds that a connection may take; ours."""

NEXT_ADDRESS = 0.25
"""Seconds after which the next address of a host is tried beside one that does not answer (RFC 8305 §5)."""

LARGEST = 256 * 2**20
"""Bytes of an answer at most, ours: a result has a thousand."""

LONGEST_HEAD = 2**20
"""Bytes of the headers of an answer at most, ours."""

SIZED = (b"content-length", b"transfer-encoding")
"""Headers by which an answer says where it ends; without one, it ends with its connection (RFC 9112 §6.3)."""


class Answer(NamedTuple):
    """What a server said."""

    status: int
    body: bytes


class Connections:
    """Posts JSON to servers, directly (no proxy is asked); connections are used again.

    Args:
        headers: Of every request.
    """

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = dict(headers)
        self._places: dict[str, _Place] = {}

    async def post(self, url: str, body: bytes) -> Answer:
        """What the server at a URL answers; who stops waiting costs the connection.

        Raises:
            OSError: If it cannot be reached, hangs up, or does not speak HTTP.
        """
        place = self._places.get(url)
        if place is None:
            place = self._places[url] = _place(url, self._headers)
        request = b"%bContent-Length: %d\r\n\r\n%b" % (place.head, len(body), body)
        while place.idle:
            connection = place.idle.pop()
            if not connection.open:
                continue
            try:
                return await _ask(place, connection, request)
            except ConnectionError:
                if connection.heard:
                    raise
                # It was closed for its silence while the request was on its way; scoring twice does no harm.
        return await _ask(place, await _connect(place), request)

    def close(self) -> None:
        """Close those that nobody uses; the others close when their requests are taken back."""
        for place in self._places.values():
            for connection in place.idle:
                connection.close()
            place.idle.clear()


class _Connection(asyncio.Protocol):
    """One connection; the parser tells it the parts of an answer."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[Answer] | None = None
        self._sized = False
        self._headed = False
        """Whether an answer is on its way whose headers are complete."""
        self._size = 0
        self.open = True
        self.heard = False
        """Whether anything came since the latest request."""

    async def ask(self, request: bytes) -> Answer:
        """The answer to a request.

        Raises:
            ConnectionError: If none comes.
        """
        if self._transport is None:
            raise RuntimeError("a connection is used before it is made")
        self._answer, self.heard, self._size = asyncio.get_running_loop().create_future(), False, 0
        self._transport.write(request)
        try:
            return await self._answer
        except asyncio.CancelledError:
            self.close()  # its answer would be taken for that of the next request
            raise
        finally:
            self._answer = None

    def close(self) -> None:
        """Hang up."""
        self.open = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not isinstance(transport, asyncio.Transport):
            raise TypeError(f"{type(transport).__name__} is no transport of a stream")
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self.heard = True
        if self._answer is None:
            self.close()  # said without being asked, as before hanging up
            return
        self._size += len(data)
        if self._size > (LARGEST if self._headed else LONGEST_HEAD):
            self._fail("its answer does not end")
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"its answer is no HTTP: {error}")
            self.close()

    def eof_received(self) -> None:
        self.open = False  # the transport closes itself
        if self._headed and not self._sized:
            self._finish()

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        self._fail(f"it hung up{'' if exc is None else f': {exc}'}")

    def on_message_begin(self) -> None:
        self._sized = False
        if self._answer is None or self._answer.done():
            self.close()  # more than was asked for, which would be taken for the next answer

    def on_header(self, name: bytes, _: bytes) -> None:
        self._sized = self._sized or name.lower() in SIZED

    def on_headers_complete(self) -> None:
        self._headed = True

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        self._headed = False
        if self._parser.get_status_code() < 200:
            return  # that it goes on
        if not self._parser.should_keep_alive():
            self.close()
        self._finish()

    def _finish(self) -> None:
        answer = Answer(self._parser.get_status_code(), b"".join(self._body))
        self._body.clear()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    def _fail(self, why: str) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError(why))


@dataclass(slots=True)
class _Place:
    """Where requests to one URL go."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    head: bytes
    """Of every request, without its length."""
    idle: list[_Connection] = field(default_factory=list)


def _place(url: str, headers: Mapping[str, str]) -> _Place:
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    lines = [f"POST {parts.path} HTTP/1.1", f"Host: {parts.netloc}", "Content-Type: application/json"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return _Place(
        parts.hostname or "",
        parts.port or (443 if secure else 80),
        ssl.create_default_context() if secure else None,
        "".join(f"{line}\r\n" for line in lines).encode(),
    )


async def _connect(place: _Place) -> _Connection:
    async with asyncio.timeout(CONNECT):
        _, connection = await asyncio.get_running_loop().create_connection(
            _Connection, place.host, place.port, ssl=place.tls, happy_eyeballs_delay=NEXT_ADDRESS
        )
    return connection


async def _ask(place: _Place, connection: _Connection, request: bytes) -> Answer:
    answer = await connection.ask(request)
    if connection.open:
        place.idle.append(connection)
    return answer
