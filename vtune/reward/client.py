"""Scores from reward services (`vtune serve rewards`): any server can stand in for any other."""

import asyncio
import json
import os
import random
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import httpx2

from vtune.errors import RecipeError, VtuneError
from vtune.reward.breaker import Breaker
from vtune.reward.recipe import RewardService
from vtune.reward.wire import item_of, with_scores
from vtune.schema.reward import Reward
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory

AT_ONCE = 4
"""Requests under way at one server, ours: what comes meanwhile shares the next one."""

ITEMS = 32
"""Trajectories in one request at most, ours."""

BYTES = 8 * 2**20
"""Of one request at most, unless a single trajectory is larger; ours, well below what a service takes."""

ATTEMPTS = 3
"""For one trajectory whose worker or judge failed while its service is well."""

FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0
"""Seconds between rounds in which every server was tried, doubled each time; ours."""

PATIENCE = 0.5
"""Seconds that a request runs before a second server is asked too, at least; ours."""

SLOW = 2.0
"""A second server is asked after so many times what 19 of 20 requests took lately; ours."""

LATELY = 200
"""Requests."""


FAILED, TOO_LARGE = 500, 413
"""HTTP statuses: a worker or judge failed; smaller requests might be taken."""

KEYS = {"status", "reward", "error"}
"""Of every result."""

RETRIED = (408, 429)
"""Statuses below 500 that say nothing against the request."""


class _Unusable(Exception):
    """A server gave no usable answer; another may."""


class _Refused(Exception):
    """A server will not answer this request, however often it is asked."""


class _TooLarge(_Refused):
    """It would answer a smaller one."""


@dataclass(slots=True)
class _Server:
    url: str
    breaker: Breaker = field(default_factory=Breaker)
    under_way: int = 0


@dataclass(slots=True, eq=False)
class _Item:
    """A trajectory that waits for its scores."""

    body: bytes
    found: asyncio.Future[Mapping[str, Any]]
    attempts: int = 0
    ends: float | None = None
    """When its deadline passes; it runs from the first request on, so that a long queue costs nobody."""


class RewardClient:
    """Has services score trajectories; an async context manager.

    Trajectories that wait at the same time share requests. A request that fails goes to another server, at
    once where there is one and after a growing pause where all have failed; one that takes unusually long is
    put to a second server too, and the first answer counts. A server that fails three times in a row is left
    alone for a growing while. Scoring changes nothing, so asking twice does no harm.

    When a trajectory's deadline has passed without any server answering anything, the services count as
    down: then each request gets one attempt, without waiting, until one succeeds. So an outage stops a run in
    minutes instead of hours, as one of a judge does.
    """

    def __init__(self, service: RewardService, settings: Mapping[str, Any]) -> None:
        """Prepare, without connecting.

        Args:
            service: Where the servers are.
            settings: `settings_of` the recipe: what the servers are to score by.
        """
        self._service = service
        self._settings = json.dumps(settings, allow_nan=False).encode()
        self._servers = [_Server(url) for url in service.urls]
        self._queue: deque[_Item] = deque()
        self._senders: set[asyncio.Task[None]] = set()
        self._took: deque[float] = deque(maxlen=LATELY)
        self._answered = 0.0
        """When a server last did."""
        self._down = False
        self._http: httpx2.AsyncClient | None = None

    async def __aenter__(self) -> Self:
        """Open.

        Raises:
            RecipeError: If the environment variable of the token is not set.
        """
        name = self._service.token_env
        if name is not None and name not in os.environ:
            raise RecipeError(
                f"the token of the reward service is not set: no environment variable {name}",
                fix=f"export {name}=…",
            )
        headers = {"Authorization": f"Bearer {os.environ[name]}"} if name is not None else {}
        self._http = httpx2.AsyncClient(
            headers=headers,
            timeout=httpx2.Timeout(self._service.deadline_s, connect=5.0),
            limits=httpx2.Limits(max_connections=None),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._senders:
            task.cancel()
        await asyncio.gather(*self._senders, return_exceptions=True)
        if self._http is not None:
            await self._http.aclose()

    async def score(self, sample: Sample, trajectory: Trajectory) -> Trajectory:
        """The trajectory with `reward`, `tool_scores` and the flags of its calls filled in.

        Where no service could tell, all of them are None, with the reason.
        """
        try:
            # Encoding pictures takes a while; texts do not.
            item = await asyncio.to_thread(item_of, sample, trajectory) if trajectory.calls else None
            body = json.dumps(item or item_of(sample, trajectory), allow_nan=False).encode()
            scores = await self._ask(body)
            if scores["reward"] is None:
                return _unscored(trajectory, str(scores["error"]["what"]))
            return with_scores(trajectory, scores)
        except (VtuneError, _Unusable, _Refused) as error:
            return _unscored(trajectory, str(error).splitlines()[0])

    async def _ask(self, body: bytes) -> Mapping[str, Any]:
        item = _Item(body, asyncio.get_running_loop().create_future())
        self._queue.append(item)
        # In the next turn of the loop, so that those who ask in this one share a request.
        asyncio.get_running_loop().call_soon(self._send_more)
        try:
            return await item.found
        finally:
            item.found.cancel()  # nobody waits any more: it is not sent

    def _send_more(self) -> None:
        while self._queue and len(self._senders) < AT_ONCE * len(self._servers):
            free = AT_ONCE * len(self._servers) - len(self._senders)
            most = min(ITEMS, -(-len(self._queue) // free))  # spread over what is free
            items = [self._queue.popleft()]
            size = len(items[0].body)
            while self._queue and len(items) < most and size + len(self._queue[0].body) <= BYTES:
                size += len(self._queue[0].body)
                items.append(self._queue.popleft())
            wanted = [item for item in items if not item.found.done()]
            if wanted:
                task = asyncio.create_task(self._send(wanted))
                self._senders.add(task)
                task.add_done_callback(self._sent)

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._senders.discard(task)
        self._send_more()

    async def _send(self, items: Sequence[_Item]) -> None:
        """Have some items scored by one request; each gets its scores or an exception."""
        now = time.monotonic()
        for item in items:
            item.ends = item.ends or now + self._service.deadline_s
        ends = min(item.ends or 0.0 for item in items)
        try:
            results = await self._answer(items, ends)
        except _TooLarge as error:
            if len(items) == 1:
                _fail(items, error)
                return
            for half in (items[: len(items) // 2], items[len(items) // 2 :]):
                await self._send(half)
            return
        except (_Unusable, _Refused) as error:
            _fail(items, error)
            return
        for item, result in zip(items, results, strict=True):
            if item.found.done():
                continue
            item.attempts += 1
            if result["status"] == FAILED and item.attempts < ATTEMPTS:
                self._queue.append(item)
            else:
                item.found.set_result(result)

    async def _answer(self, items: Sequence[_Item], ends: float) -> list[dict[str, Any]]:
        """What the first server to answer says.

        Raises:
            _Unusable: If none did in time.
            _Refused: If one refuses the request.
        """
        body = b'{"reward": %b, "items": [%b]}' % (
            self._settings,
            b", ".join(item.body for item in items),
        )
        began, wait = time.monotonic(), FIRST_WAIT
        tried: list[_Server] = []
        while (now := time.monotonic()) < ends:
            server = self._choose(tried)
            if server is not None:
                tried.append(server)
                try:
                    return await self._hedged(server, body, len(items), ends)
                except _Unusable:
                    continue
            if self._down:
                break
            pause = wait * random.uniform(0.5, 1.0)  # so that clients do not come back all at once
            pause = max(pause, min(one.breaker.opens_in(now) for one in self._servers))
            await asyncio.sleep(min(pause, ends - now))
            wait, tried = min(2 * wait, LONGEST_WAIT), []
        self._down = self._down or self._answered < began
        whys = ", ".join(f"{one.url}: {one.breaker.why or 'busy'}" for one in self._servers)
        raise _Unusable(f"no reward service answered ({whys})")

    def _choose(self, tried: Sequence[_Server]) -> _Server | None:
        """The least busy server that works and was not tried."""
        now = time.monotonic()
        able = [one for one in self._servers if one not in tried and one.breaker.allows(now)]
        return min(able, key=lambda one: (one.under_way, random.random()), default=None)

    async def _hedged(self, server: _Server, body: bytes, count: int, ends: float) -> list[dict[str, Any]]:
        """What a server says or, where it takes unusually long, a second one."""
        tasks = [asyncio.create_task(self._post(server, body, count, ends))]
        try:
            done, _ = await asyncio.wait(tasks, timeout=self._patience())
            second = None if done else self._choose([server])
            if second is not None:
                tasks.append(asyncio.create_task(self._post(second, body, count, ends)))
            for task in asyncio.as_completed(tasks):
                try:
                    found = await task
                except _Unusable as error:
                    failure = error
                    continue
                if not tasks[0].done():
                    server.breaker.failed("slower than another server", time.monotonic())
                return found
            raise failure
        finally:
            for one in tasks:
                one.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _patience(self) -> float:
        if not self._took:
            return 10 * PATIENCE  # servers that were just started
        return max(PATIENCE, SLOW * sorted(self._took)[len(self._took) * 19 // 20])

    async def _post(self, server: _Server, body: bytes, count: int, ends: float) -> list[dict[str, Any]]:
        """What one server says to one request.

        Raises:
            _Unusable: If it cannot be reached, fails, or does not answer in time.
            _Refused: If it refuses the request.
        """
        if self._http is None:
            raise RuntimeError("the reward client is used outside its `async with`")
        began = time.monotonic()
        server.breaker.began()
        server.under_way += 1
        try:
            async with asyncio.timeout_at(asyncio.get_running_loop().time() + ends - began):
                response = await self._http.post(
                    f"{server.url}/score", content=body, headers={"Content-Type": "application/json"}
                )
            results = _results(response, count)
        except (httpx2.TransportError, TimeoutError, _Unusable) as error:
            name = "" if isinstance(error, _Unusable) else type(error).__name__
            why = f"{name} {error}".strip()
            server.breaker.failed(why, time.monotonic())
            raise _Unusable(f"{server.url}: {why}") from error
        except asyncio.CancelledError:
            server.breaker.given_up()
            raise
        except _Refused:
            server.breaker.succeeded()
            raise
        finally:
            server.under_way -= 1
        server.breaker.succeeded()
        self._answered, self._down = time.monotonic(), False
        self._took.append(self._answered - began)
        return results


def _results(response: httpx2.Response, count: int) -> list[dict[str, Any]]:
    """The results in an answer, one for each item, in order."""
    status = response.status_code
    if status == 200:
        try:
            results = response.json()["results"]
            whole = len(results) == count and all(
                {"status", "reward", "error"} <= set(one) for one in results
            )
        except (ValueError, KeyError, TypeError):
            whole = False
        if not whole:
            raise _Unusable(f"its answer is not {count} results: {response.text[:200]!r}")
        found: list[dict[str, Any]] = results
        return found
    try:
        said = str(response.json()["error"]["what"])
    except (ValueError, KeyError, TypeError):
        said = response.text[:200]
    why = f"HTTP {status}: {said}"
    if status == TOO_LARGE:
        raise _TooLarge(f"the reward service takes no request that large: {why}")
    if 400 <= status < 500 and status not in RETRIED:
        raise _Refused(f"the reward service refuses: {why}")
    raise _Unusable(why)


def _fail(items: Sequence[_Item], error: Exception) -> None:
    for item in items:
        if not item.found.done():
            item.found.set_exception(error)


def _unscored(trajectory: Trajectory, why: str) -> Trajectory:
    nothing = Reward(total=None, accuracy=None, format=None, tool=None, why=why)
    return replace(trajectory, reward=nothing, tool_scores=(None,) * len(trajectory.calls))
