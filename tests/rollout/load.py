"""Conversations of very different lengths, and a loop that waits for the slowest at every turn."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace

from tests.models.rows import picture
from tests.rollout.build import LOOK, PHOTO, SAMPLE, SEEN, FakeSandbox, FakeSession, recipe
from tests.rollout.scripted import ScriptedEngine
from vtune.models.policy import Policy
from vtune.rollout.agent import Agent, Job
from vtune.rollout.engine import Completion, Engine, Request
from vtune.sandbox import Execution
from vtune.schema.trajectory import Trajectory

ANSWER = "<answer>7</answer>"
TOKENS = (8, 64)
"""Minimum and maximum tokens per turn, which differ by a factor of 8 as in real rollouts."""
TURNS = 6
"""Maximum turns per conversation; all numbers from 1 are equally frequent."""


class SlowSession(FakeSession):
    seconds = 0.2

    async def run(self, code: str) -> Execution:
        await asyncio.sleep(self.seconds)
        return await super().run(code)


class SlowSandbox(FakeSandbox):
    """Every call takes 200 ms and returns a picture that depends on the session."""

    async def open(self, images: Sequence[bytes], *, seed: int) -> SlowSession:
        shown = replace(SEEN, images=(picture(40, 30, seed=seed % 7),))
        return SlowSession(shown, images)


class Shaped(Engine):
    """An engine whose turn lengths follow from the conversation's key; their text is scripted.

    The wrapped engine really generates that many tokens after the real prompt with its pictures.
    """

    cohorts = 1

    def __init__(self, engine: Engine, policy: Policy) -> None:
        self._engine = engine
        self._policy = policy

    def join(self, cohort: int) -> None:
        self._engine.join(cohort)

    def leave(self, cohort: int) -> None:
        self._engine.leave(cohort)

    async def generate(self, request: Request) -> Completion:
        *conversation, turn = request.key
        tokens = random.Random(repr(request.key)).randint(*TOKENS)
        turns = random.Random(repr(conversation)).randint(1, TURNS)
        sampling = replace(request.sampling, max_new_tokens=tokens, stop=())
        await self._engine.generate(replace(request, sampling=sampling))
        said = LOOK if turn + 1 < turns else ANSWER
        return await ScriptedEngine(self._policy.chat, [said]).generate(request)


class Barrier(Engine):
    """The same engine for a loop that is synchronous per turn: turns start once all conversations wait, and
    all continue when the last turn is done."""

    cohorts = 1

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._running = 0
        self._asked: list[tuple[Request, asyncio.Future[Completion]]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def join(self, cohort: int) -> None:
        self._running += 1

    def leave(self, cohort: int) -> None:
        self._running -= 1
        self._draw_if_all_wait()

    async def generate(self, request: Request) -> Completion:
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._asked.append((request, future))
        self._draw_if_all_wait()
        return await future

    def _draw_if_all_wait(self) -> None:
        if self._asked and len(self._asked) == self._running:
            asked, self._asked = self._asked, []
            self._tasks.add(asyncio.create_task(self._draw(asked)))

    async def _draw(self, asked: Sequence[tuple[Request, "asyncio.Future[Completion]"]]) -> None:
        found = await asyncio.gather(*(self._engine.generate(request) for request, _ in asked))
        for (_, future), completion in zip(asked, found, strict=True):
            future.set_result(completion)


def jobs(groups: int, rollouts: int) -> list[Job]:
    return [
        Job(
            sample=SAMPLE, images=(PHOTO,), group=group, rollout=rollout,
            policy_version=0, key=(0, 0, group, rollout),
        )
        for group in range(groups)
        for rollout in range(rollouts)
    ]  # fmt: skip


def agent(engine: Engine, policy: Policy, lanes: int) -> Agent:
    settings = recipe(max_batch=lanes, max_turns=TURNS, max_new_tokens=100, max_tokens=1000)
    return Agent(engine, SlowSandbox(), policy.chat, policy.pictures, settings)  # type: ignore[arg-type]


async def asynchronous(engine: Engine, policy: Policy, work: Sequence[Job], lanes: int) -> list[Trajectory]:
    """The loop of `vtune rl`."""
    return await agent(Shaped(engine, policy), policy, lanes).run(work)


async def by_turn(engine: Engine, policy: Policy, work: Sequence[Job], lanes: int) -> list[Trajectory]:
    """Batches of conversations, synchronous per turn; a batch ends with its longest conversation."""
    runner = agent(Barrier(Shaped(engine, policy)), policy, lanes)
    found: list[Trajectory] = []
    for start in range(0, len(work), lanes):
        found += await runner.run(work[start : start + lanes])
    return found
