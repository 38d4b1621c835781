"""Several reward servers as one: retries, a second server for slow requests, circuit breakers."""

import asyncio
import json
import random
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from vtune.judge.key import secret
from vtune.reward.breaker import Breaker
from vtune.reward.connections import Answer, Connections
from vtune.reward.recipe import RewardService
from vtune.tools.remote_settings import bearer

FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0
"""Seconds between rounds in which every server was tried, doubling each time; ours."""

PATIENCE = 0.5
"""Minimum seconds before a second server is asked too; ours."""

SLOW = 2.0
"""A second server is asked after this multiple of the recent 95th percentile of request times; ours."""

LATELY, RELEARNT = 200, 20
"""Numbers of requests: how many count as recent, and how often the percentile is recomputed."""

GREETING = 10.0
"""Seconds for a server to answer before a run; ours."""

FAILED, TOO_LARGE = 500, 413
"""HTTP statuses: a worker or judge failed; smaller requests might be taken."""

RETRIED = (408, 429)
"""Statuses below 500 that are worth a retry, because they do not mean that the request is wrong."""


class Unusable(Exception):
    """A server gave no usable answer; another may."""


class Refused(Exception):
    """A server will not answer this request, however often it is retried.

    Args:
        why: The reason, as text.
        fix: What the server suggests; empty if nothing.
        token: Whether the token is wrong or missing.
    """

    def __init__(self, why: str, fix: str = "", *, token: bool = False) -> None:
        super().__init__(why)
        self.fix, self.token = fix, token


UNAUTHORISED = 401
"""Status for a wrong or missing token."""
LONGEST_FIX = 500
"""Limit on characters of a remedy that a server suggests."""


class TooLarge(Refused):
    """The server would accept a smaller request."""


@dataclass(slots=True)
class _Server:
    url: str
    breaker: Breaker = field(default_factory=Breaker)
    under_way: int = 0


class Servers:
    """Sends each request to several servers and takes the first answer; an async context manager.

    A failed request goes to another server: at once if there is one left, and after a growing pause if
    all have failed. A request that takes unusually long is sent to a second server too, and the first answer
    counts. A server that fails three times in a row is left alone for a growing pause. Scoring changes
    nothing, so asking twice does no harm.

    If a request's deadline passes without an answer from any server to any request, all servers count as
    down: then each request gets one attempt, without waiting, until one succeeds. So an outage stops a run in
    minutes instead of hours, just as an outage of a judge does.
    """

    def __init__(self, service: RewardService) -> None:
        """Set up, without connecting."""
        self._service = service
        self._servers = [_Server(url) for url in service.urls]
        self._took: deque[float] = deque(maxlen=LATELY)
        self._counted = 0
        self._answered = 0.0
        """When a server last answered."""
        self._down = False
        self._patience = 10 * PATIENCE  # servers may have only just been started
        self._http: Connections | None = None

    async def __aenter__(self) -> Self:
        """Open the connections.

        Raises:
            RecipeError: If the environment variable of the token is not set, or not a valid header value.
        """
        token = secret(self._service.token_env, "the token of the reward service")
        self._http = Connections(bearer(token))
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._http is not None:
            await self._http.close()

    async def answer(self, body: bytes, count: int, *, ends: float) -> list[dict[str, Any]]:
        """The results from the first usable answer.

        Args:
            body: JSON for `POST /score`.
            count: Number of items in it, and so of results in the answer.
            ends: The deadline, in seconds of the monotonic clock.

        Raises:
            Unusable: If no server gave one in time.
            Refused: If a server refuses the request.
        """
        began, wait = time.monotonic(), FIRST_WAIT
        tried: list[_Server] = []
        asked = False
        while (now := time.monotonic()) < ends:
            server = self._choose(tried)
            if server is not None:
                tried.append(server)
                asked = True
                try:
                    return await self._hedged(server, body, count, ends)
                except Unusable:
                    continue
            if self._down:
                break
            pause = wait * random.uniform(0.5, 1.0)  # so that clients do not all come back at once
            pause = max(pause, min(one.breaker.opens_in(now) for one in self._servers))
            await asyncio.sleep(min(pause, ends - now))
            wait, tried = min(2 * wait, LONGEST_WAIT), []
        self._down = self._down or (asked and self._answered < began)
        whys = ", ".join(f"{one.url}: {one.breaker.why or 'busy'}" for one in self._servers)
        raise Unusable(f"no reward service answered ({whys})")

    async def ping(self, body: bytes) -> list[str]:
        """Why servers cannot be used now, one line for each such server; all are asked concurrently.

        Args:
            body: JSON for `POST /score`, with no items.

        Raises:
            Refused: If a server refuses; the message names its URL.
        """
        ends = time.monotonic() + GREETING
        asked = (self._post(one, body, 0, ends) for one in self._servers)
        found = await asyncio.gather(*asked, return_exceptions=True)
        for server, one in zip(self._servers, found, strict=True):
            if isinstance(one, Refused):
                raise Refused(f"{server.url}: {one}", one.fix, token=one.token)
            if isinstance(one, BaseException) and not isinstance(one, Unusable):
                raise one
        return [str(one) for one in found if isinstance(one, Unusable)]

    def _choose(self, tried: Sequence[_Server]) -> _Server | None:
        """The least busy available server that has not been tried."""
        now = time.monotonic()
        able = [one for one in self._servers if one not in tried and one.breaker.allows(now)]
        return min(able, key=lambda one: (one.under_way, random.random()), default=None)

    async def _hedged(self, server: _Server, body: bytes, count: int, ends: float) -> list[dict[str, Any]]:
        """The answer of a server or, if it takes unusually long, of a second one."""
        tasks = [asyncio.create_task(self._post(server, body, count, ends))]
        try:
            done, _ = await asyncio.wait(tasks, timeout=self._patience)
            if done:
                return tasks[0].result()
            second = self._choose([server])
            if second is not None:
                tasks.append(asyncio.create_task(self._post(second, body, count, ends)))
            for task in asyncio.as_completed(tasks):
                try:
                    found = await task
                except Unusable as error:
                    failure = error
                    continue
                if not tasks[0].done():
                    server.breaker.failed("slower than another server", time.monotonic())
                return found
            raise failure
        finally:
            if len(tasks) > 1 or not tasks[0].done():
                for one in tasks:
                    one.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    def _answered_in(self, seconds: float) -> None:
        """Record how long a server took."""
        self._took.append(seconds)
        self._counted += 1
        if self._counted % RELEARNT == 1:
            lately = sorted(self._took)
            self._patience = max(PATIENCE, SLOW * lately[len(lately) * 19 // 20])

    async def _post(self, server: _Server, body: bytes, count: int, ends: float) -> list[dict[str, Any]]:
        """One server's answer to one request.

        Raises:
            Unusable: If it cannot be reached, fails, or does not answer in time.
            Refused: If it refuses the request.
        """
        if self._http is None:
            raise RuntimeError("the reward client is used outside its `async with`")
        began = time.monotonic()
        server.breaker.began()
        server.under_way += 1
        try:
            async with asyncio.timeout_at(asyncio.get_running_loop().time() + ends - began):
                answer = await self._http.post(f"{server.url}/score", body)
            results = _results(answer, count)
        except (OSError, Unusable) as error:
            name = "" if isinstance(error, Unusable | ConnectionError) else type(error).__name__
            why = f"{name} {error}".strip()
            server.breaker.failed(why, time.monotonic())
            raise Unusable(f"{server.url}: {why}") from error
        except asyncio.CancelledError:
            server.breaker.given_up()
            raise
        except Refused:
            server.breaker.succeeded()
            raise
        finally:
            server.under_way -= 1
        server.breaker.succeeded()
        self._answered, self._down = time.monotonic(), False
        self._answered_in(self._answered - began)
        return results


def _results(answer: Answer, count: int) -> list[dict[str, Any]]:
    """The results in an answer, one per item, in order."""
    status = answer.status
    if status == 200:
        try:
            results = json.loads(answer.body)["results"]
            whole = isinstance(results, list) and len(results) == count and all(map(_is_result, results))
        except (ValueError, KeyError, TypeError, RecursionError):
            whole = False
        if not whole:
            raise Unusable(f"its answer is not {count} results: {_text(answer)!r}")
        found: list[dict[str, Any]] = results
        return found
    fix = ""
    try:
        error = json.loads(answer.body)["error"]
        said, fix = str(error["what"]), str(error.get("fix", ""))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        said = _text(answer)
    why = f"HTTP {status}: {said}"
    if status == TOO_LARGE:
        raise TooLarge(f"the reward service takes no request that large: {why}")
    if 400 <= status < 500 and status not in RETRIED:
        raise Refused(f"the reward service refuses: {why}", fix[:LONGEST_FIX], token=status == UNAUTHORISED)
    raise Unusable(why)


def _is_result(one: Any) -> bool:
    """Whether it is a reward, or an error with an explanation."""
    if not isinstance(one, dict) or not {"status", "reward", "error"} <= set(one):
        return False
    error = one["error"]
    explained = isinstance(error, dict) and isinstance(error.get("what"), str)
    return isinstance(one["reward"], dict) or (one["reward"] is None and explained)


def _text(answer: Answer) -> str:
    return answer.body[:200].decode("utf-8", "replace")
