"""A listening socket, and an application that answers on it until told to stop."""

import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass

import uvicorn
from starlette.types import ASGIApp

from vtune.errors import RecipeError
from vtune.runs.serve.connection_timeouts import IDLE, TimeoutProtocol, room_for_connections
from vtune.signals import orders_to_stop

GRACE = 15
"""Seconds that running requests get when the service is told to stop; ours."""

BACKLOG = 2048
"""Connections that may wait to be accepted; uvicorn's own default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """Where a service listens, and what it accepts there."""

    host: str
    """Name or address."""
    port: int
    """0 picks a free one."""
    token: str | None
    """Required in every request; needed if other machines can reach the service."""
    max_bytes: int
    """Size limit of a request."""


async def serve_until_stopped(app: ASGIApp, listener: socket.socket, ready: Callable[[], None]) -> None:
    """Serve until SIGINT, SIGTERM or SIGHUP; running requests are answered first.

    Args:
        app: Answers the requests.
        listener: The listening socket.
        ready: Called before the first request is answered.
    """
    most = room_for_connections()
    protocol = type("Limited", (TimeoutProtocol,), {"most": most})
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            proxy_headers=False,  # the client's address is not used
            lifespan="off",  # the service's own function cleans up, however the server ends
            timeout_graceful_shutdown=GRACE,
            timeout_keep_alive=IDLE,
            http=protocol,
            backlog=most,  # so many are accepted at once, before any is closed to make room
            ws="none",
        )
    )

    def stop(*_: object) -> None:
        server.should_exit = True

    # uvicorn re-raises the signal when it has shut down, but a signal is how a service ends normally.
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, *orders_to_stop())}
    try:
        ready()
        await server.serve(sockets=[listener])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def url_of(listener: socket.socket) -> str:
    """The URL at which clients reach a listening socket."""
    name, number = listener.getsockname()[:2]
    return f"http://[{name}]:{number}" if ":" in name else f"http://{name}:{number}"


def listen(host: str, port: int, *, options: str = "--port (0 picks a free one) or --host") -> socket.socket:
    """A socket that listens.

    Args:
        host: Name or address.
        port: 0 picks a free one.
        options: Options that change the address, for the remedy.

    Raises:
        RecipeError: If the address cannot be bound.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # Name the protocol: otherwise asyncio does not turn off Nagle's algorithm, which costs 40 ms.
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        raise RecipeError(
            f"cannot listen on {host}:{port}: {error.strerror}",
            fix=f"choose another {options}",
        ) from None
    return listener
