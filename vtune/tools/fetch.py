"""Reads web pages within limits of size, time and redirects, and never from a local network address.

Names are resolved here, and the connection goes to the checked address, so a name that resolves
differently the second time (DNS rebinding) cannot lead anywhere else.
"""

import asyncio
import ipaddress
import random
import re
import socket
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from pydantic import Field
from yarl import URL

from vtune.sections import Strict
from vtune.tools.charsets import decoded
from vtune.tools.hosts import is_blocked, url_of
from vtune.tools.http import FIRST_WAIT, LONGEST_WAIT, RETRIED, retry_after, time_left
from vtune.tools.unpacking import Unpacker

TYPES = ("text/html", "application/xhtml+xml", "text/plain")
REDIRECTS = (301, 302, 303, 307, 308)
PDF = b"%PDF-"
BINARY, SNIFFED = re.compile(r"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]"), 1445
"""Characters that no text has, and where browsers look for them (WHATWG, MIME Sniffing, 5.2 and 7.2)."""
CHUNK = 2**16
"""Bytes read at a time."""
AGENT = "Mozilla/5.0 (compatible; vtune)"


class Limits(Strict):
    """Limits for reading a page."""

    max_bytes: int = Field(default=4_000_000, gt=0)
    """Per page, decompressed; ours."""
    timeout_s: float = Field(default=15.0, gt=0)
    """Per page, including all of its redirects; ours."""
    redirects: int = Field(default=5, ge=0)
    private: tuple[str, ...] = ()
    """`host:port` on the local network that may be read anyway, e.g. a mirror; no others may."""


class NotRead(Exception):
    """Why a page was not read: the web's fault, or one of our limits. The policy gets only its snippet.

    Args:
        why: The reason, for people.
        passing: Whether a later attempt may succeed.
        after: Seconds that the server asks to wait.
    """

    def __init__(self, why: str, *, passing: bool = False, after: float = 0.0) -> None:
        super().__init__(why)
        self.passing, self.after = passing, after


@dataclass(frozen=True, slots=True)
class Fetched:
    """A page as received."""

    url: str
    """The final address, after all redirects."""
    text: str
    html: bool


class Fetcher:
    """Reads pages.

    Args:
        limits: Limits per page.
        blocked: Hosts that are not read, not even after a redirect.
        retries: Further attempts after a failure that may be temporary, within the time for the page.
    """

    def __init__(self, limits: Limits, blocked: Sequence[str], *, retries: int) -> None:
        self._limits = limits
        self._blocked = tuple(blocked)
        self._retries = retries
        self._session: aiohttp.ClientSession | None = None

    async def fetch(self, url: str) -> Fetched:
        """The page at an address.

        Raises:
            NotRead: If it does not arrive in time, is too large, is not text, or its address is refused.
        """
        failed = NotRead(f"nothing within {self._limits.timeout_s:g} s", passing=True)
        wait = FIRST_WAIT
        try:
            async with asyncio.timeout(self._limits.timeout_s) as limit:
                for attempt in range(self._retries + 1):
                    if attempt:
                        await asyncio.sleep(max(wait * random.uniform(0.5, 1.0), failed.after))
                        wait = min(2 * wait, LONGEST_WAIT)
                    try:
                        return await self._once(url)
                    except NotRead as why:
                        if not why.passing or why.after > time_left(limit):
                            raise
                        failed = why
        except TimeoutError:
            raise failed from None  # the reason of the last attempt says more
        raise failed

    async def _once(self, url: str) -> Fetched:
        try:
            return await self._follow(url)
        except (aiohttp.ClientError, OSError, UnicodeError, ValueError) as error:
            # The resolver's refusal is wrapped in a connection error.
            cause = error.__cause__ or error
            if isinstance(cause, _Private):
                raise NotRead(str(cause)) from None
            # ValueError, which includes InvalidURL, means that the address itself is wrong.
            raise NotRead(type(error).__name__, passing=not isinstance(error, ValueError)) from None

    async def _follow(self, url: str) -> Fetched:
        for _ in range(self._limits.redirects + 1):
            checked = self._checked(url)
            async with self._get(checked) as response:
                if response.status not in REDIRECTS:
                    return await self._taken(str(checked), response)
                target = response.headers.get("Location")
                if not target:
                    raise NotRead(f"HTTP {response.status} without an address")
                url = str(checked.join(url_of(target)))
        raise NotRead(f"more than {self._limits.redirects} redirects")

    @asynccontextmanager
    async def _get(self, url: URL) -> AsyncIterator[aiohttp.ClientResponse]:
        if self._session is None:
            resolver = _Public(self._limits.private)
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(resolver=resolver, use_dns_cache=False, limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                headers={"User-Agent": AGENT, "Accept-Encoding": "gzip, deflate", "Accept": ", ".join(TYPES)},
            )
        async with self._session.get(url, allow_redirects=False) as response:
            yield response

    def _checked(self, url: str) -> URL:
        """The address to request, if it is allowed; a name is checked when it is resolved.

        It is parsed only once: another parser might read another host (full-width digits, ideographic stops).
        """
        try:
            address = url_of(url)
        except ValueError:
            raise NotRead("not an address of the web") from None
        host = address.raw_host
        if address.scheme not in ("http", "https") or not host:
            raise NotRead("not an address of the web")
        if address.user is not None or address.password is not None:
            raise NotRead("the address holds a name or a password")
        if is_blocked(str(address), self._blocked):
            raise NotRead(f"{host} is blocked")
        try:
            found = ipaddress.ip_address(host)
        except ValueError:
            if _is_number(host):
                raise NotRead(f"{host} is a number, not the name of a host") from None
            return address
        if not _is_public(str(found)) and f"{host}:{address.port}" not in self._limits.private:
            raise NotRead(f"{host} is not a public address")
        return address

    async def _taken(self, url: str, response: aiohttp.ClientResponse) -> Fetched:
        if response.status != 200:
            passing = response.status >= 500 or response.status in RETRIED
            after = retry_after(response.headers)
            raise NotRead(f"HTTP {response.status}", passing=passing, after=after)
        kind = response.content_type.lower()
        if kind not in TYPES:
            raise NotRead(f"{kind} is not text")
        data = await self._unpacked(response)
        html = kind != "text/plain"
        text = decoded(data, response.charset, html=html)
        if data.startswith(PDF) or (not html and BINARY.search(text, 0, SNIFFED)):
            raise NotRead(f"it is not text, although it is sent as {kind}")
        return Fetched(url, text, html)

    async def _unpacked(self, response: aiohttp.ClientResponse) -> bytes:
        """The body; never more than the limit is in memory, however well it was compressed."""
        packed = response.headers.get("Content-Encoding", "identity").strip().lower()
        if packed not in ("identity", "", "gzip", "deflate"):
            raise NotRead(f"packed as {packed}")
        most, taken, data = self._limits.max_bytes, 0, bytearray()
        unpacker = Unpacker(most) if packed in ("gzip", "deflate") else None
        if unpacker is not None:
            data = unpacker.data
        async for chunk in response.content.iter_chunked(CHUNK):
            taken += len(chunk)
            try:
                if unpacker is None:
                    data += chunk
                else:
                    unpacker.feed(chunk)
            except zlib.error:
                raise NotRead(f"it is not {packed}") from None
            if len(data) > most or taken > most:
                raise NotRead(f"larger than {most} bytes")
        if unpacker is not None and not unpacker.complete:
            raise NotRead(f"its {packed} ends too early", passing=True)
        return bytes(data)

    async def aclose(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()


class _Private(OSError):
    """A name that resolves into a local network."""


class _Public(AbstractResolver):
    """Resolves names to public addresses only; all addresses of a name must be public."""

    def __init__(self, private: Sequence[str]) -> None:
        self._private = private

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, family=family)
        addresses = [str(entry[4][0]) for entry in found]
        if f"{host}:{port}" not in self._private:
            refused = next((address for address in addresses if not _is_public(address)), None)
            if refused is not None:
                raise _Private(f"{host} is {refused}, not a public address")
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=entry[0],
                proto=entry[2],
                flags=socket.AI_NUMERICHOST,
            )
            for address, entry in zip(addresses, found, strict=True)
        ]

    async def close(self) -> None:
        """Nothing is open."""


_COMPATIBLE, _NAT64 = ipaddress.IPv6Network("::/96"), ipaddress.IPv6Network("64:ff9b::/96")
"""IPv6 networks whose last 32 bits are an IPv4 address, besides those the standard library knows."""
_LOCAL_NAT64 = ipaddress.IPv6Network("64:ff9b:1::/48")
"""Leads to the IPv4 addresses of one's own network (RFC 8215); older Pythons call it global."""


def _is_number(host: str) -> bool:
    """Whether a host is an IPv4 address in any form of the C library: `2130706433`, `0x7f.1`, `127.1`.

    aiohttp before 3.14.1 also treats most of them as addresses, and calls no resolver.
    """
    try:
        socket.inet_aton(host)
    except OSError:
        return False
    return True


def _is_public(address: str) -> bool:
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        if found.is_site_local or found in _COMPATIBLE or found in _LOCAL_NAT64:
            return False
        inner = found.ipv4_mapped or found.sixtofour
        if found in _NAT64:
            inner = ipaddress.IPv4Address(int(found) & 0xFFFFFFFF)
        if inner is not None and not inner.is_global:
            return False
    return found.is_global and not found.is_multicast
