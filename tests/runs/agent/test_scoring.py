"""Scoring starts as soon as a conversation ends."""

import asyncio
from dataclasses import replace

import pytest

from tests.judge.server import FakeJudge, serve
from tests.reward.build import recipe as rewarded
from tests.rollout.build import SAMPLE, FakeSandbox, job, recipe
from tests.rollout.scripted import ScriptedEngine
from vtune.errors import DataError, RunFailed
from vtune.models.policy import Policy
from vtune.reward.score import Scorer
from vtune.rollout.agent import Agent
from vtune.rollout.engine import Completion, Request
from vtune.rollout.stopwatch import Stopwatch
from vtune.runs.agent.scoring import draw_and_score
from vtune.schema.trajectory import Trajectory

FREE = replace(SAMPLE, verifier="judge", ground_truth="seven", tools=())
SAID = ["a 7", "an 8", "seven", "a 9"]
"""Answers by rollout; one needs no judge."""


class Talking(ScriptedEngine):
    """Each rollout gives its own answer; the first waits until `held` is set."""

    def __init__(self, policy: Policy, held: asyncio.Event) -> None:
        super().__init__(policy.chat, ["never said"])
        self.held = held

    async def generate(self, request: Request) -> Completion:
        rollout = request.key[-2]
        if rollout == 0:
            async with asyncio.timeout(60):
                await self.held.wait()
        reply = f"<think>I see.</think><answer>{SAID[rollout]}</answer>"
        return await ScriptedEngine(self._chat, [reply]).generate(request)


def agent_of(policy: Policy, engine: ScriptedEngine) -> Agent:
    return Agent(engine, FakeSandbox(), policy.chat, policy.pictures, recipe())  # type: ignore[arg-type]


def verdict(body: dict[str, object]) -> str:
    """Whether the answer was a 7; records when each question arrives."""
    return "TRUE" if "a 7" in str(body) else "FALSE"


def scored(policy: Policy, *, together: bool) -> list[Trajectory]:
    """Four rollouts, scored as they end or all after the last."""
    jobs = [job(FREE, rollout=rollout) for rollout in range(4)]

    async def story(judge: FakeJudge) -> list[Trajectory]:
        held = asyncio.Event()
        held.set()
        agent = agent_of(policy, Talking(policy, held))
        async with Scorer(rewarded(judge=judge.endpoint())) as scorer:
            if together:
                return await draw_and_score(agent, scorer, jobs, [FREE], iou=())
            return await scorer.score([FREE], await agent.run(jobs))

    with serve(verdict) as judge:
        return asyncio.run(story(judge))


def test_scores_order_and_records_match_scoring_after_the_last_rollout(policy: Policy) -> None:
    found = scored(policy, together=True)
    assert [t.rollout for t in found] == [0, 1, 2, 3]
    assert [t.reward.accuracy for t in found if t.reward is not None] == [1.0, 0.0, 1.0, 0.0]
    assert found == scored(policy, together=False)


def test_the_judge_is_asked_while_other_conversations_still_run(policy: Policy) -> None:
    """The first conversation continues only once the judge has been asked about the second."""
    jobs = [job(FREE, rollout=rollout) for rollout in (0, 1)]

    async def story() -> list[Trajectory]:
        held, loop = asyncio.Event(), asyncio.get_running_loop()

        def asked(body: dict[str, object]) -> str:
            loop.call_soon_threadsafe(held.set)
            return verdict(body)

        with serve(asked) as judge:
            async with Scorer(rewarded(judge=judge.endpoint())) as scorer:
                agent = agent_of(policy, Talking(policy, held))
                return await draw_and_score(agent, scorer, jobs, [FREE], iou=())

    assert [t.reward.accuracy for t in asyncio.run(story()) if t.reward is not None] == [1.0, 0.0]


class Holding(Stopwatch):
    """Records whether it ran before the last conversation ended."""

    covers = 0

    def _change(self, *, blocks: int = 0, covers: int = 0) -> None:
        super()._change(blocks=blocks, covers=covers)
        self.covers += covers


def test_concurrent_scoring_does_not_delay_conversations(policy: Policy) -> None:
    watch, seen = Holding(), []

    class Noting(ScriptedEngine):
        async def generate(self, request: Request) -> Completion:
            seen.append(watch.covers)
            return await super().generate(request)

    async def story() -> None:
        answer = "<think>I see.</think><answer>seven</answer>"
        agent = agent_of(policy, Noting(policy.chat, [answer]))
        async with Scorer(rewarded()) as scorer:
            await draw_and_score(agent, scorer, [job(FREE)], [FREE], iou=(), waiting=watch)

    asyncio.run(story())
    assert (seen, watch.covers) == ([1], 0)


def test_a_scoring_error_ends_the_conversations_with_its_reason(policy: Policy) -> None:
    async def story() -> None:
        never = asyncio.Event()
        agent = agent_of(policy, Talking(policy, never))
        jobs = [job(FREE, rollout=rollout) for rollout in (0, 1)]
        async with Scorer(rewarded()) as scorer:
            with pytest.raises(DataError, match="no sample has the id"):
                await draw_and_score(agent, scorer, jobs, [replace(FREE, id="other")], iou=())

    asyncio.run(story())


def test_an_engine_that_dies_ends_scoring_with_its_reason(policy: Policy) -> None:
    class Dead(Talking):
        async def generate(self, request: Request) -> Completion:
            if request.key[-2] == 0:
                await self.held.wait()
                raise RunFailed("nothing is left that could draw")
            return await super().generate(request)

    async def story() -> None:
        held, loop = asyncio.Event(), asyncio.get_running_loop()

        def asked(body: dict[str, object]) -> str:
            loop.call_soon_threadsafe(held.set)
            return verdict(body)

        with serve(asked) as judge:
            agent = agent_of(policy, Dead(policy, held))
            jobs = [job(FREE, rollout=rollout) for rollout in (0, 1)]
            async with Scorer(rewarded(judge=judge.endpoint())) as scorer:
                with pytest.raises(RunFailed, match="nothing is left"):
                    await draw_and_score(agent, scorer, jobs, [FREE], iou=())

    asyncio.run(story())
