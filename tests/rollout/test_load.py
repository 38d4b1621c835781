import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tests.rollout.load import asynchronous, by_turn, jobs
from tests.rollout.scripted import ScriptedEngine
from tests.rollout.virtual_time import VirtualTime
from vtune.models.policy import Policy
from vtune.rollout.engine import Completion, Request

TOKEN = 0.004


class Timed(ScriptedEngine):
    """A step takes the same time for any number of rows."""

    async def generate(self, request: Request) -> Completion:
        await asyncio.sleep(TOKEN * request.sampling.max_new_tokens)
        return await super().generate(request)


def test_conversations_do_not_wait_for_each_other(policy: Policy) -> None:
    """Nearly twice the conversations of a loop synchronous per turn, with tools that take 200 ms."""
    work = jobs(8, 8)
    seconds: list[float] = []
    loops: tuple[Callable[..., Coroutine[Any, Any, Any]], ...] = (by_turn, asynchronous)
    for loop in loops:
        with asyncio.Runner(loop_factory=VirtualTime) as runner:
            found = runner.run(loop(Timed(policy.chat, ["x"]), policy, work, 16))
            seconds.append(runner.get_loop().time())
        assert len({(t.group, t.rollout) for t in found}) == 64
        assert {t.stop_reason for t in found} == {"answer"}
    assert seconds[0] > 1.9 * seconds[1], seconds
