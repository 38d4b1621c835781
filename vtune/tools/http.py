"""HTTP requests to services: retried while there is time, then given up."""

import asyncio
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2
from pydantic import Field

from vtune.errors import ServiceError
from vtune.files.json_text import parse_json
from vtune.judge.tls import trusted
from vtune.sections import Strict

FIRST_WAIT, LONGEST_WAIT = 0.2, 5.0
"""Seconds between attempts, doubling each time; ours."""

RETRIED = (408, 429)
"""Statuses below 500 that do not mean that the request is wrong."""

CONNECT = 5.0
"""Seconds to establish a connection; ours."""

LARGEST = 64 * 2**20
"""Limit on an answer's bytes when unpacked; ours: one with a hundred passages or thumbnails has far less."""

LOGS = "check that it is up, and what it logs"
"""The remedy where a service says nothing about it."""


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds to wait according to the header Retry-After (RFC 9110), else 0.

    Args:
        headers: Those of the answer; must ignore case in names.
    """
    said = headers.get("Retry-After", "").strip()
    if said.isascii() and said.isdigit():
        return float(said[:9])
    try:
        until = parsedate_to_datetime(said)
    except (ValueError, OverflowError):
        return 0.0
    # A date without a zone is in UTC.
    return max((until.replace(tzinfo=until.tzinfo or UTC) - datetime.now(UTC)).total_seconds(), 0.0)


def time_left(limit: asyncio.Timeout) -> float:
    """Seconds left until a timeout that has been set."""
    return (limit.when() or 0.0) - asyncio.get_running_loop().time()


class Patience(Strict):
    """How long to wait for a service."""

    timeout_s: float = Field(gt=0)
    """Per attempt, in seconds."""
    retries: int = Field(ge=0)
    """Retries after a failed connection, a timeout, a wrongly compressed body, a status 408, 429 or 5xx, or a
    search engine's answer that reports a failure which may pass; none earlier than its header Retry-After
    asks for."""
    deadline_s: float = Field(gt=0)
    """For all attempts together, in seconds; after that the failure is ours and the trajectory is unscored.
    """
    concurrency: int = Field(gt=0)
    """Concurrent requests."""


@dataclass(frozen=True, slots=True)
class Outage:
    """What failed behind an answer with status 200."""

    why: str
    fix: str
    """The remedy."""
    passing: bool = True
    """Whether a retry may help."""


class Poster:
    """Sends requests to one URL and reads JSON.

    After as many consecutive failures as there may be concurrent requests, the service counts as down: then
    each request gets one attempt, until one succeeds. So an outage stops a run in minutes instead of hours.
    """

    def __init__(
        self,
        url: str,
        patience: Patience,
        *,
        headers: Mapping[str, str],
        name: str,
        outage: Callable[[Any], Outage | None] = lambda answer: None,
    ) -> None:
        """Create a client that is not connected yet.

        Args:
            url: The URL of the service.
            patience: How long to wait.
            headers: Sent with every request.
            name: Name of the service in errors.
            outage: Says what failed behind an answer with status 200; None if nothing.
        """
        self._url = url
        self._patience = patience
        self._headers = dict(headers)
        self._name = name
        self._outage = outage
        self._room = asyncio.Semaphore(patience.concurrency)
        self._failures = 0
        self._http: httpx2.AsyncClient | None = None

    async def post(self, body: Mapping[str, Any]) -> Any:
        """POST JSON and return the service's answer.

        Raises:
            ServiceError: If there is no usable answer in time, or the service refuses the request.
        """
        return await self._patiently("POST", self._url, json=body)

    async def get(self, params: Mapping[str, Any]) -> Any:
        """GET with these parameters, in addition to those of its URL, and return the answer.

        Raises:
            ServiceError: As in `post`.
        """
        # `params` of a request would replace the parameters in the URL.
        return await self._patiently("GET", str(httpx2.URL(self._url).copy_merge_params(params)))

    async def _patiently(self, method: str, address: str, **sent: Any) -> Any:
        if self._http is None:
            self._http = httpx2.AsyncClient(
                headers=self._headers,
                verify=trusted(),
                timeout=httpx2.Timeout(self._patience.timeout_s, connect=CONNECT),
                limits=httpx2.Limits(max_connections=None),
            )
        why, fix = "no time", LOGS
        try:
            # The deadline starts once a slot is free, so that waiting in the queue does not count.
            async with self._room, asyncio.timeout(self._patience.deadline_s) as limit:
                down = self._failures >= self._patience.concurrency
                wait, asked = FIRST_WAIT, 0.0
                for attempt in range(1 if down else self._patience.retries + 1):
                    if attempt:
                        # Keep the slot while waiting: an overloaded service then gets fewer requests.
                        await asyncio.sleep(max(wait * random.uniform(0.5, 1.0), asked))
                        wait = min(2 * wait, LONGEST_WAIT)
                    try:
                        return await self._once(self._http, method, address, sent)
                    except _Failed as error:
                        why, fix, asked = str(error), error.fix, error.after
                    if asked > time_left(limit):
                        break
        except TimeoutError:
            why = f"nothing within {self._patience.deadline_s:g} s ({why})"
        self._failures += 1
        raise ServiceError(
            f"{self._name} gave no answer: {why}",
            where=self._url,
            fix=fix,
        )

    async def _once(
        self, http: httpx2.AsyncClient, method: str, address: str, sent: Mapping[str, Any]
    ) -> Any:
        try:
            async with (
                asyncio.timeout(self._patience.timeout_s),
                http.stream(method, address, **sent) as response,
            ):
                body = await self._read(response)
        except (httpx2.RequestError, TimeoutError) as error:
            raise _Failed(f"{type(error).__name__} {error}".strip()) from None
        status, said = response.status_code, body[:800].decode(errors="replace")[:200]
        if status >= 500 or status in RETRIED:
            raise _Failed(f"HTTP {status}: {said}", after=retry_after(response.headers))
        if status != 200:
            self._failures = 0
            raise ServiceError(
                f"{self._name} refuses: HTTP {status}: {said}",
                where=self._url,
                fix="fix `tools` in the recipe, or the key",
            )
        try:
            answer = parse_json(body)
        except ValueError as error:
            raise ServiceError(
                f"{self._name} did not answer with readable JSON: {said!r} ({error})",
                where=self._url,
                fix="check that this is its address, and what it logs",
            ) from None
        if outage := self._outage(answer):
            raise _Failed(outage.why, fix=outage.fix, after=0.0 if outage.passing else math.inf)
        self._failures = 0
        return answer

    async def _read(self, response: httpx2.Response) -> bytes:
        body = bytearray()
        async for part in response.aiter_bytes():
            body += part
            if len(body) > LARGEST:
                raise ServiceError(
                    f"{self._name} answers with more than {LARGEST >> 20} MiB",
                    where=self._url,
                    fix="check that this is its address, and what it logs",
                )
        return bytes(body)

    async def aclose(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.aclose()


class _Failed(Exception):
    """No usable answer; another attempt may get one, after at least `after` seconds (infinite: never)."""

    def __init__(self, why: str, *, fix: str = LOGS, after: float = 0.0) -> None:
        super().__init__(why)
        self.fix, self.after = fix, after
