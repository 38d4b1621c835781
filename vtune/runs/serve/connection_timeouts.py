"""Limits for a service's connections: one that sends or takes too little is closed, and so are too many."""

import asyncio
import resource
from weakref import WeakKeyDictionary

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

IDLE = 75
"""Seconds after which an idle connection is closed; ours: longer than many a training step."""

HEAD = 10.0
"""Seconds from a connection, or the first byte of a further request, to the end of its headers; ours."""

HEAD_BYTES = 2**16
"""Size limit for the headers of one request, ours: uvicorn's HTTP parser has no limit."""

BODY, BODY_BYTES = 20.0, 2**18
"""Seconds that a body may take, plus one more per this many bytes; ours: networks are faster."""

TAKEN = 30.0
"""Seconds in which a client has to take its response; ours."""

CONNECTIONS = 2048
"""Open at a time, ours. Another one closes the one idle the longest; if all are busy, it is closed itself."""


def room_for_connections() -> int:
    """Connections that may be open at a time: `CONNECTIONS`, or as many as the limit on open files leaves.

    As many again may be accepted before the first of them are closed. So the soft limit is raised by twice
    that number: the rest of the process has as many files as before. Where the hard limit forbids it, half of
    all files are for connections.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return CONNECTIONS
    raised = soft + 2 * CONNECTIONS
    if hard != resource.RLIM_INFINITY:
        raised = min(raised, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    return min(CONNECTIONS, max(raised - soft, raised // 2) // 2)


class TimeoutProtocol(HttpToolsProtocol):
    """uvicorn's protocol, which by itself would wait forever for the rest of a request."""

    head_s = HEAD
    body_s = BODY
    taken_s = TAKEN
    most = CONNECTIONS

    _deadline: asyncio.TimerHandle | None = None
    _untaken: asyncio.TimerHandle | None = None
    _head = 0
    """Bytes of headers so far; -1 from the end of the headers to the end of the request."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Make room if there is none, and expect a request."""
        super().connection_made(transport)
        if len(self.connections) > self.most:
            oldest = next(iter(self._silent), self)
            # Now, not in `connection_lost`: others may connect before that, and each must close another one.
            oldest._forget()
            oldest.transport.abort()
        if self in self.connections:
            self._note()
        self._expect(self.head_s)

    @property
    def _silent(self) -> "dict[TimeoutProtocol, None]":
        """The server's connections without a pending response, the longest silent first."""
        return _SILENT.setdefault(self.server_state, {})

    def _note(self) -> None:
        """Update the order after a request or a response."""
        self._silent.pop(self, None)
        if self.is_silent:
            self._silent[self] = None

    def _forget(self) -> None:
        self.connections.discard(self)
        self._silent.pop(self, None)

    @property
    def is_silent(self) -> bool:
        """Whether no response is pending on the connection."""
        return self.cycle is None or self.cycle.response_complete

    def data_received(self, data: bytes) -> None:
        """Process incoming data; the clock starts at the first byte of a request."""
        if self._head >= 0:
            if self._head == 0 and self._deadline is None:
                self._expect(self.head_s)
            self._head += len(data)
        super().data_received(data)
        if self._head > HEAD_BYTES:
            self.transport.abort()

    def on_headers_complete(self) -> None:
        """Allow the body a time that depends on its length."""
        self._head = -1
        sizes = [value for name, value in self.headers if name == b"content-length"]
        size = int(sizes[0]) if sizes and sizes[0].isdigit() else 0
        self._expect(self.body_s + min(size, 2**40) / BODY_BYTES)
        super().on_headers_complete()
        self._note()

    def on_message_complete(self) -> None:
        """Wait without a deadline until more data comes."""
        self._head = 0
        self._expect(None)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The connection is silent until the next request, unless that has come already."""
        super().on_response_complete()
        if self in self.connections:
            self._note()

    def pause_writing(self) -> None:
        """Start the deadline for the client to take its response."""
        super().pause_writing()
        self._untaken = self.loop.call_later(self.taken_s, self.transport.abort)

    def resume_writing(self) -> None:
        """Cancel that deadline: the client took the data."""
        super().resume_writing()
        if self._untaken is not None:
            self._untaken.cancel()
            self._untaken = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel all deadlines."""
        self._forget()
        self._expect(None)
        super().connection_lost(exc)
        if self._untaken is not None:
            self._untaken.cancel()

    def _expect(self, seconds: float | None) -> None:
        """Close the connection after this many seconds; replaces any earlier deadline."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)


_SILENT: WeakKeyDictionary[ServerState, dict[TimeoutProtocol, None]] = WeakKeyDictionary()
"""By server: see `TimeoutProtocol._silent`. Found in constant time, whatever the number of connections."""
