"""Tool calls that do not end are named."""

import asyncio
import re

from tests.rollout.build import ANSWER, LOOK, FakeSandbox, FakeSession, job, recipe
from tests.rollout.scripted import ScriptedEngine
from tests.rollout.virtual_time import VirtualTime
from vtune.models.policy import Policy
from vtune.rollout.agent import Agent, Job
from vtune.rollout.stalls import Stalls
from vtune.sandbox import Execution

MINUTES = 60.0


class Slow(FakeSandbox):
    """Every call takes a few minutes."""

    def __init__(self, minutes: float) -> None:
        super().__init__()
        self.minutes = minutes

    async def open(self, images: object, *, seed: int) -> FakeSession:
        session = await super().open(images, seed=seed)  # type: ignore[arg-type]
        run = session.run

        async def late(code: str) -> Execution:
            await asyncio.sleep(self.minutes * MINUTES)
            return await run(code)

        session.run = late  # type: ignore[method-assign]
        return session


def said(policy: Policy, minutes: float, jobs: list[Job]) -> list[str]:
    lines: list[str] = []
    engine = ScriptedEngine(policy.chat, [LOOK] * len(jobs) + [ANSWER] * len(jobs))
    sandbox = Slow(minutes)
    agent = Agent(engine, sandbox, policy.chat, policy.pictures, recipe(), warn=lines.append)  # type: ignore[arg-type]
    with asyncio.Runner(loop_factory=VirtualTime) as runner:
        found = runner.run(agent.run(jobs))
    assert {one.stop_reason for one in found} == {"answer"}
    return lines


def test_a_call_is_named_after_five_minutes_and_at_each_doubling(policy: Policy) -> None:
    lines = said(policy, 25, [job()])
    waited = [
        re.match(r"no answer for (\d+) minutes from the environment 'tools', sample", one) for one in lines
    ]
    assert [one and one[1] for one in waited] == ["5", "10", "20"]
    assert all("</code>" in one and one.endswith("; still waiting") for one in lines)


def test_calls_that_stall_together_are_named_once(policy: Policy) -> None:
    (line,) = said(policy, 6, [job(rollout=number) for number in range(4)])
    assert "(3 more have waited for over 5)" in line


def test_calls_that_end_are_not_named(policy: Policy) -> None:
    assert said(policy, 4.9, [job(rollout=number) for number in range(4)]) == []


def test_a_call_is_named_regardless_of_earlier_messages() -> None:
    """Consecutive calls, and one that started while the first was still running."""
    assert waits({"first": (0, 9), "second": (10, 9)}) == ["5 minutes from first", "5 minutes from second"]
    assert waits({"first": (0, 11), "second": (8, 9)})[2:] == ["7 minutes from second"]


def waits(calls: dict[str, tuple[float, float]]) -> list[str]:
    """Messages about calls, given as (start minute, duration in minutes)."""
    lines: list[str] = []
    stalls = Stalls(lines.append)

    async def call(name: str, begins: float, takes: float) -> None:
        await asyncio.sleep(begins * MINUTES)
        with stalls.waiting(name):
            await asyncio.sleep(takes * MINUTES)

    async def every() -> None:
        await asyncio.gather(*(call(name, *times) for name, times in calls.items()))

    with asyncio.Runner(loop_factory=VirtualTime) as runner:
        runner.run(every())
    return [line.removeprefix("no answer for ").partition(";")[0] for line in lines]
