"""Scores from reward services (`vtune serve rewards`): concurrent scores share requests."""

import asyncio
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

from vtune.errors import RunFailed, VtuneError
from vtune.reward.recipe import RewardService
from vtune.reward.servers import FAILED, Refused, Servers, TooLarge, Unusable
from vtune.reward.wire import item_of, looked_at, packed_json, request_of, with_scores
from vtune.schema.reward import Reward
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory

AT_ONCE = 4
"""Concurrent requests to one server, ours: what arrives meanwhile shares the next one."""

ITEMS = 32
"""Limit on trajectories in one request, ours."""

BYTES = 8 * 2**20
"""Of one request at most, unless a single trajectory is larger; ours, well below what a service takes."""

SMALL = 2**20
"""Bytes of pictures that are encoded at once, in a millisecond, ours; a thread for less costs more."""

ATTEMPTS = 3
"""For one trajectory whose worker or judge failed although its service is up; ours."""


@dataclass(slots=True, eq=False)
class _Item:
    """A trajectory waiting for its scores."""

    body: bytes
    found: asyncio.Future[Mapping[str, Any]]
    attempts: int = 0
    ends: float | None = None
    """Its deadline, counted from the first request on, so that a long queue costs nobody."""


class RewardClient:
    """Has services score trajectories; an async context manager.

    `Servers` decides which server is asked, and what becomes of those that fail.
    """

    def __init__(self, service: RewardService, settings: Mapping[str, Any]) -> None:
        """Prepare, without connecting.

        Args:
            service: Where the servers are.
            settings: `settings_of` the recipe: what the servers are to score by.
        """
        self._deadline_s = service.deadline_s
        self._most = AT_ONCE * len(service.urls)
        self._settings = packed_json(settings)
        self._servers = Servers(service)
        self._queue: deque[_Item] = deque()
        self._senders: set[asyncio.Task[None]] = set()
        self.silent: dict[tuple[str, int], str] = {}
        """(sample, rollout) -> why the judge of a service gave no reply, of what has no score for it."""

    async def __aenter__(self) -> Self:
        """Open.

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

        Where no service could tell, all of them are None, with the reason.

        Raises:
            RunFailed: If a part of the user's is broken.
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
                return _unscored(trajectory, str(scores["error"]["what"]))
            done = with_scores(trajectory, scores)
            if scores.get("silent") is True and done.reward is not None:
                self.silent[trajectory.sample_id, trajectory.rollout] = done.reward.why
            return done
        except RunFailed:
            raise  # a part of the user's is broken: that is no reason of this trajectory's
        except (VtuneError, Unusable, Refused) as error:
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
        while self._queue and len(self._senders) < self._most:
            items = [item for item in self._next() if not item.found.done()]
            if items:
                task = asyncio.create_task(self._send(items))
                self._senders.add(task)
                task.add_done_callback(partial(self._sent, items))

    def _next(self) -> list[_Item]:
        """The next items to share a request: the queue is spread over the requests that are allowed."""
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
        # One that is sent again has little time left; its mates keep theirs.
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
    """Whether its pictures, if any are sent, are quick to encode; one to be read from a file is not."""
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
    """The error of a user's own part, which broke in the service."""
    where = f"{said.get('where') or ''} of the reward service, whose log has the traceback".strip()
    return RunFailed(str(said["what"]), where=where, fix=str(said.get("fix") or ""))


def _unscored(trajectory: Trajectory, why: str) -> Trajectory:
    nothing = Reward(total=None, accuracy=None, format=None, tool=None, why=why)
    return replace(trajectory, reward=nothing, tool_scores=(None,) * len(trajectory.calls))
