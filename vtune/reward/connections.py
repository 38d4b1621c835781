"""Connections to reward servers: one aiohttp session that keeps its connections open for reuse."""

import io
from collections.abc import Mapping
from typing import NamedTuple

import aiohttp

CONNECT = 5.0
"""Seconds to establish a connection; ours."""

KEPT = 60.0
"""Seconds that an idle connection is kept; ours: shorter than our service keeps it, so that a request rarely
hits a connection that is being closed."""

LARGEST = 256 * 2**20
"""Limit on an answer's bytes; ours: the result of one trajectory has about a thousand."""


class Answer(NamedTuple):
    """A server's answer."""

    status: int
    body: bytes


class Connections:
    """Posts JSON to servers directly: without proxies, redirects or cookies.

    Must be created and used within one event loop.

    Args:
        headers: Sent with every request.
    """

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEPT),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT),
            headers={"Content-Type": "application/json", "Accept-Encoding": "identity", **headers},
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,  # a few compressed bytes may expand to gigabytes
        )

    async def post(self, url: str, body: bytes) -> Answer:
        """The server's answer to a POST to this URL; cancelling closes the connection.

        Raises:
            ConnectionError: If it cannot be reached, hangs up, does not speak HTTP, or answers too much.
        """
        try:
            try:
                return await self._once(url, body)
            except aiohttp.ClientConnectorError:
                raise
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                # The server may just have closed the idle connection; scoring twice does no harm.
                return await self._once(url, body)
        except aiohttp.ClientError as error:
            raise ConnectionError(f"{type(error).__name__}: {error}") from error

    async def _once(self, url: str, body: bytes) -> Answer:
        parts, size = [], 0
        async with self._session.post(url, data=io.BytesIO(body), allow_redirects=False) as response:
            async for part in response.content.iter_any():
                parts.append(part)
                size += len(part)
                if size > LARGEST:
                    raise ConnectionError(f"its answer has more than {LARGEST} bytes")
            return Answer(response.status, b"".join(parts))

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()
