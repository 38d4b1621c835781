"""Scores from reward services (`vtune serve rewards`): concurrent scores share requests."""

import asyncio
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

from vtune.errors import RunFailed, VtuneError
from vtune.reward.combining import unscorable
from vtune.reward.recipe import RewardService
from vtune.reward.servers import FAILED, Refused, Servers, TooLarge, Unusable
from vtune.reward.wire import item_of, looked_at, packed_json, request_of, with_scores
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory

AT_ONCE = 4
"""Concurrent requests per server; ours. Trajectories that arrive meanwhile share the next request."""

ITEMS = 32
"""Limit on trajectories in one request, ours."""

BYTES = 8 * 2**20
"""Limit on a request's bytes, unless a single trajectory is larger; ours, well below a service's limit."""

SMALL = 2**20
"""Up to this many bytes of pictures are encoded on the event loop, in a millisecond; ours."""

ATTEMPTS = 3
"""Attempts per trajectory if its worker or judge failed although the service is up; ours."""


@dataclass(slots=True, eq=False)
class _Item:
    """A trajectory waiting for its scores."""

    body: bytes
    found: asyncio.Future[Mapping[str, Any]]
    attempts: int = 0
    ends: float | None = None
    """Deadline, counted from its first request, so that waiting in a long queue does not count."""


class RewardClient:
    """Has services score trajectories; an async context manager.

    `Servers` chooses the server for each request and handles failures.
    """

    def __init__(self, service: RewardService, settings: Mapping[str, Any]) -> None:
        """Create a client that is not connected yet.

        Args:
            service: Where the servers are.
            settings: `settings_of` the recipe, by which the servers score.
        """
        self._deadline_s = service.deadline_s
        self._most = AT_ONCE * len(service.urls)
        self._settings = packed_json(settings)
        self._servers = Servers(service)
        self._queue: deque[_Item] = deque()
        self._senders: set[asyncio.Task[None]] = set()
        self.silent: dict[tuple[str, int], str] = {}
        """(sample, rollout) -> why the service's judge gave no reply, for trajectories left unscored."""

    async def __aenter__(self) -> Self:
        """Open the connections.

        Raises:
            RecipeError: If the environment variable of the token is not set.
        """
        await self._servers.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._senders:
            task.cancel()
        await asyncio.gather(*self._senders, return_exceptions=True)
        await self._servers.__aexit__()

    async def score(self, sample: Sample, trajectory: Trajectory) -> Trajectory:
        """The trajectory with `reward`, `tool_scores` and the flags of its calls filled in.

        If no service could score it, all of them are None, with the reason.

        Raises:
            RunFailed: If a user's own part is broken.
        """
        try:
            if _is_small(sample, trajectory):
                body = _body(sample, trajectory)
            else:
                body = await asyncio.to_thread(_body, sample, trajectory)
            scores = await self._ask(body)
            if scores["reward"] is None:
                if scores.get("broken") is True:
                    raise _broken(scores["error"])
                return unscorable(trajectory, str(scores["error"]["what"]))
            done = with_scores(trajectory, scores)
            if scores.get("silent") is True and done.reward is not None:
                self.silent[trajectory.sample_id, trajectory.rollout] = done.reward.why
            return done
        except RunFailed:
            raise  # a user's own part is broken: not a reason to leave just this trajectory unscored
        except (VtuneError, Unusable, Refused) as error:
            return unscorable(trajectory, str(error).splitlines()[0])

    async def _ask(self, body: bytes) -> Mapping[str, Any]:
        item = _Item(body, asyncio.get_running_loop().create_future())
        self._queue.append(item)
        # On the next iteration of the loop, so that trajectories queued in this one share a request.
        asyncio.get_running_loop().call_soon(self._send_more)
        try:
            return await item.found
        finally:
            item.found.cancel()  # nobody is waiting any more: do not send it

    def _send_more(self) -> None:
        while self._queue and len(self._senders) < self._most:
            items = [item for item in self._next() if not item.found.done()]
            if items:
                task = asyncio.create_task(self._send(items))
                self._senders.add(task)
                task.add_done_callback(partial(self._sent, items))

    def _next(self) -> list[_Item]:
        """The next items to share a request; the queue is divided among the requests still allowed."""
        most = min(ITEMS, -(-len(self._queue) // (self._most - len(self._senders))))
        items = [self._queue.popleft()]
        size = len(items[0].body)
        while self._queue and len(items) < most and size + len(self._queue[0].body) <= BYTES:
            size += len(self._queue[0].body)
            items.append(self._queue.popleft())
        return items

    def _sent(self, items: Sequence[_Item], task: asyncio.Task[None]) -> None:
        self._senders.discard(task)
        if task.cancelled():
            for item in items:
                item.found.cancel()
        elif (bug := task.exception()) is not None:
            _fail(items, bug)
        self._send_more()

    async def _send(self, items: Sequence[_Item]) -> None:
        """Have some items scored by one request; each gets its scores or an exception."""
        now = time.monotonic()
        for item in items:
            item.ends = item.ends or now + self._deadline_s
        late = [item for item in items if item.ends is not None and item.ends <= now]
        if late:
            _fail(late, Unusable("no reward service answered in time"))
            items = [item for item in items if item not in late]
            if not items:
                return
        # A retried item has little time left; the others keep their full deadline.
        ends = max(item.ends or 0.0 for item in items)
        try:
            body = request_of(self._settings, [item.body for item in items])
            results = await self._servers.answer(body, len(items), ends=ends)
        except TooLarge as error:
            if len(items) == 1:
                _fail(items, error)
                return
            for half in (items[: len(items) // 2], items[len(items) // 2 :]):
                await self._send(half)
            return
        except (Unusable, Refused) as error:
            _fail(items, error)
            return
        for item, result in zip(items, results, strict=True):
            if item.found.done():
                continue
            item.attempts += 1
            again = result["status"] == FAILED and result.get("broken") is not True
            if again and item.attempts < ATTEMPTS:
                self._queue.append(item)
            else:
                item.found.set_result(result)


def _is_small(sample: Sample, trajectory: Trajectory) -> bool:
    """Whether its pictures, if any are sent, are quick to encode; one still on disk is not."""
    shown = looked_at(sample, trajectory)
    sizes = [SMALL + 1 if picture.data is None else len(picture.data) for picture in shown]
    return sum(sizes) <= SMALL


def _body(sample: Sample, trajectory: Trajectory) -> bytes:
    return packed_json(item_of(sample, trajectory))


def _fail(items: Sequence[_Item], error: BaseException) -> None:
    for item in items:
        if not item.found.done():
            item.found.set_exception(error)


def _broken(said: Mapping[str, Any]) -> RunFailed:
    """The error for a user's own part that broke in the service."""
    where = f"{said.get('where') or ''} of the reward service (its log has the traceback)".strip()
    return RunFailed(str(said["what"]), where=where, fix=str(said.get("fix") or ""))
