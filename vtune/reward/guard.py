"""Who may use a reward service, and how much at once."""

import asyncio
import base64
import hmac
import ipaddress
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from fastapi.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vtune.reward.wire import packed_json

OPEN = ("/health",)
"""Paths open to anyone: whether the service is alive."""

CHALLENGE = 'Bearer, Basic realm="vtune"'
"""What a 401 offers: some clients send a password only after it (RFC 9110, section 11.6.1)."""

Worded = Callable[[int, str, str], Mapping[str, Any]]
"""(status, what, fix) -> the body of a refusal."""


def plainly(status: int, what: str, fix: str) -> Mapping[str, Any]:
    """A refusal in the form of our own services."""
    return {"error": {"what": what, "where": "", "fix": fix}}


class Guard:
    """Wraps an ASGI application: checks the token and the size of the body.

    Args:
        app: The application to protect.
        token: What requests must send as `Authorization: Bearer …`, or as the password of HTTP Basic, which
            clients send for a URL like http://any:TOKEN@HOST:PORT; None admits all except web pages open in a
            browser on this machine.
        max_bytes: Limit on a body. The size must be announced (`Content-Length`), so that a body that is too
            large is never read.
        worded: Builds the body of a refusal, for clients that expect another form.
    """

    def __init__(self, app: ASGIApp, *, token: str | None, max_bytes: int, worded: Worded = plainly) -> None:
        self._app = app
        self._worded = worded
        self._token = None if token is None else token.encode()
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on."""
        if scope["type"] == "http":
            headers = dict(scope["headers"])
            refusal = self._refusal(scope["method"], scope["path"], headers)
            if refusal is not None:
                await self._answer_to(*refusal)(scope, receive, send)
                return
        begun = False

        async def noted(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, noted)
        except asyncio.CancelledError:
            # Only a server that is shutting down cancels requests: those that outlast its grace period.
            if begun:
                raise
            ended = self._answer_to(503, "the service has ended", "ask again once it is back")
            await ended(scope, receive, send)

    def _refusal(self, method: str, path: str, headers: dict[bytes, bytes]) -> tuple[int, str, str] | None:
        """(status, what, fix), or None if nothing is wrong."""
        needed = None if path in OPEN else self._token
        if needed is not None and not hmac.compare_digest(_given(headers), needed):
            fix = "send `Authorization: Bearer TOKEN`, or the token as the password of HTTP Basic"
            return 401, "wrong or no token", fix
        if self._token is None and _from_a_page(headers):
            fix = (
                "call it by IP address or as localhost and not from a web page, or start it with --token-file"
            )
            return 403, "a request from a web page, or under another name of this machine, needs a token", fix
        size = headers.get(b"content-length", b"")
        # A chunked body may be longer than announced.
        if b"transfer-encoding" in headers or (method not in ("GET", "HEAD") and not size.isdigit()):
            return 411, "a body of unknown length", "send Content-Length"
        if size and int(size) > self._max_bytes:
            return 413, f"a body of {int(size)} bytes, the limit is {self._max_bytes}", "send fewer at once"
        return None

    def _answer_to(self, status: int, what: str, fix: str) -> "Packed":
        # The announced body is not read, so the connection cannot be reused.
        headers = {"connection": "close"} | ({"www-authenticate": CHALLENGE} if status == 401 else {})
        return Packed(self._worded(status, what, fix), status, headers)


def _given(headers: Mapping[bytes, bytes]) -> bytes:
    """The token in a request, b"" if there is none.

    A browser remembers a password, and sends it for any web page that asks: from other pages none counts.
    """
    scheme, _, value = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() == b"bearer":
        return value
    if scheme.lower() != b"basic" or _is_foreign(headers):
        return b""
    try:
        return base64.b64decode(value, validate=True).partition(b":")[2]
    except ValueError:
        return b""


def _is_foreign(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a browser asks for another page than the service's own, which not all requests name."""
    own = b"http://" + headers.get(b"host", b"")
    sites = (b"none", b"same-origin")
    return headers.get(b"origin", own) != own or headers.get(b"sec-fetch-site", b"none") not in sites


def _from_a_page(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a browser may be asking, on behalf of a web page other than the service's own.

    A browser says so (`Origin`, `Sec-Fetch-Site`). Or the page's host name has been made to point to this
    machine (DNS rebinding), and the browser sends that name (`Host`), which has a dot.
    """
    if _is_foreign(headers):
        return True
    host = headers.get(b"host", b"").decode("latin-1")
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return "." in name
    return False


class Packed(JSONResponse):
    """An answer in JSON, in ASCII: see `packed_json`."""

    def render(self, content: Mapping[str, Any]) -> bytes:
        """The body."""
        return packed_json(content)
