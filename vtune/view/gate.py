"""Who may query a viewer: its own pages, by this machine's name, with the token in the address."""

import hmac
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOSTS = ("127.0.0.1", "localhost", "::1")
"""Host names under which a browser here, or at the other end of an ssh tunnel, reaches the viewer. A page
that rebinds its own name to this machine sends that name instead."""

MAX_BODY = 16 * 2**10
"""Bytes per request; labels are the largest (ours)."""

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""In every response: nothing is loaded from elsewhere, no text becomes a script, no other page embeds it."""


class Gate:
    """Wraps an ASGI application, checks requests and strips the token from the path.

    Args:
        app: The application.
        token: The first part of every path.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on without the token."""
        if scope["type"] != "http":
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        refusal = refused(scope["method"], headers)
        _, given, rest = [*scope["path"].split("/", 2), "", ""][:3]
        if refusal is None and not hmac.compare_digest(given.encode(), self._token.encode()):
            refusal = 403, "the address has no token, or an old one: open the one that was printed"
        if refusal is not None:
            await answer({"error": refusal[1]}, refusal[0])(scope, receive, _with_headers(send))
            return
        path = f"/{rest}"
        await self._app({**scope, "path": path, "raw_path": path.encode()}, receive, _with_headers(send))


def refused(method: str, headers: Mapping[str, str]) -> tuple[int, str] | None:
    """(status, reason), or None if a request is acceptable, apart from its token."""
    host = headers.get("host", "")
    if _name(f"http://{host}") not in HOSTS:
        return 421, "open this viewer as 127.0.0.1 or localhost"
    origin = headers.get("origin")
    if origin is not None and origin != f"http://{host}":
        return 403, "the request comes from another page"
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return 403, "the request comes from another page"
    if method not in ("GET", "HEAD"):
        size = headers.get("content-length", "")
        if origin is None or headers.get("content-type") != "application/json":
            return 403, "only the page itself may write"
        if not size.isdigit() or int(size) > MAX_BODY or "transfer-encoding" in headers:
            return 413, f"a body has at most {MAX_BODY} bytes"
    return None


def answer(values: Any, status: int = 200) -> Response:
    """Values as JSON in ASCII: whatever a trajectory contains, content sniffing cannot misread it."""
    return Response(json.dumps(values, allow_nan=False), status, media_type="application/json")


def _name(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
            message = {**message, "headers": [*message["headers"], *own]}
        await send(message)

    return sending
