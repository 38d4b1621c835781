from collections.abc import Callable
from dataclasses import replace

from tests.rollout.build import ANSWER, SAMPLE, FakeSandbox, recipe
from tests.rollout.scripted import ScriptedEngine
from tests.sandbox.pieces import Clock, turns_of_pieces
from vtune.models.pictures import PictureReader, PixelBudget
from vtune.rollout.agent import Agent, Job
from vtune.rollout.engine import Completion, Request
from vtune.rollout.words import Screen, Words
from vtune.sandbox.turns import Turns
from vtune.schema.message import Message


def test_the_conversations_of_a_step_start_a_few_at_a_time() -> None:
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
        sandbox = FakeSandbox()
        sandbox.turns = Turns(clock)
        agent = Agent(
            Engine(words, [ANSWER]),  # type: ignore[arg-type]
            sandbox,  # type: ignore[arg-type]
            words,
            reader,
            recipe(max_batch=64),
        )
        jobs = [
            Job(sample, (), number // 8, number % 8, 0, (0, 0, number // 8, number % 8))
            for number in range(64)
        ]
        found = await agent.run(jobs)
        assert {trajectory.answer for trajectory in found} == {"7"}

    pieces = turns_of_pieces(work, clock)
    assert sum(pieces.values()) == 64
    assert max(pieces.values()) <= 3
