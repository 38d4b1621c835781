import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace

from tests.rollout.build import ANSWER, SAMPLE, FakeSandbox, recipe
from vtune.models.pictures import PictureReader, PixelBudget
from vtune.rollout.agent import Agent, Job
from vtune.rollout.engine import Completion, Request
from vtune.rollout.scripted import ScriptedEngine
from vtune.rollout.words import Screen, Words
from vtune.rollout.yielding import AT_A_TIME, Turns
from vtune.schema.message import Message

PIECE = AT_A_TIME / 2.5
"""Seconds that one piece of work takes: three begin in a turn of the loop."""


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def turns_of_pieces(work: Callable[[Callable[[], None]], Awaitable[object]], clock: Clock) -> Counter[int]:
    """How many pieces of `work` begin in each turn of the event loop; it calls what it is given in each."""
    pieces: Counter[int] = Counter()
    turn = 0

    def piece() -> None:
        pieces[turn] += 1
        clock.now += PIECE

    async def count() -> None:
        nonlocal turn
        while True:
            await asyncio.sleep(0)
            turn += 1

    async def run() -> None:
        counting = asyncio.create_task(count())
        await work(piece)
        counting.cancel()

    asyncio.run(run())
    return pieces


def test_work_goes_on_until_its_time_is_up_and_then_the_loop_turns() -> None:
    clock = Clock()
    turns = Turns(clock)
    order: list[int] = []

    async def work(piece: Callable[[], None]) -> None:
        async def one(number: int) -> None:
            await turns.next()
            order.append(number)
            piece()

        await asyncio.gather(*map(one, range(20)))

    pieces = turns_of_pieces(work, clock)
    assert order == list(range(20))
    assert max(pieces.values()) == 3
    assert len(pieces) == 7


def test_an_event_loop_that_ended_in_the_middle_of_its_turn_stops_no_other() -> None:
    clock = Clock()
    turns = Turns(clock)

    async def once() -> None:
        await turns.next()
        clock.now += 2 * AT_A_TIME

    asyncio.run(once())
    asyncio.run(asyncio.wait_for(once(), 5))


def test_the_conversations_of_a_step_open_a_few_at_a_time() -> None:
    clock = Clock()
    sample = replace(SAMPLE, prompt=(Message("user", "Which digit?"),), images=(), tools=())

    async def work(piece: Callable[[], None]) -> None:
        class Engine(ScriptedEngine):
            async def generate(self, request: Request) -> Completion:
                piece()
                return Completion((), (), "end", (), text=ANSWER)

        words = Words()
        budget = PixelBudget(min_pixels=3136, max_pixels=12544)
        reader = PictureReader(Screen(28), budget)
        agent = Agent(
            Engine(words, [ANSWER]),  # type: ignore[arg-type]
            FakeSandbox(),  # type: ignore[arg-type]
            words,
            reader,
            recipe(max_batch=64),
        )
        agent._turns = Turns(clock)
        jobs = [
            Job(sample, (), number // 8, number % 8, 0, (0, 0, number // 8, number % 8))
            for number in range(64)
        ]
        found = await agent.run(jobs)
        assert {trajectory.answer for trajectory in found} == {"7"}

    pieces = turns_of_pieces(work, clock)
    assert sum(pieces.values()) == 64
    assert max(pieces.values()) <= 3
