"""A policy with predetermined looks and answers."""

from collections.abc import Sequence

from tests.rollout.scripted import ScriptedEngine
from vtune.models.chat import Chat
from vtune.rollout.engine import Completion, Request
from vtune.schema.sample import Sample


class Habits(ScriptedEngine):
    """For every three samples: crops the sign and answers right; shows the whole picture and answers
    right; answers wrong without a look."""

    def __init__(self, chat: Chat, samples: Sequence[Sample]) -> None:
        super().__init__(chat, ["never said"])
        self._samples = samples

    async def generate(self, request: Request) -> Completion:
        *_, number, _, turn = request.key
        sample, habit = self._samples[number], number % 3
        x0, y0, x1, y1 = (0, 0, 448, 448) if habit else (round(side) for side in sample.evidence[0].bbox)
        look = f'<think>I look.<code>image.crop(({x0}, {y0}, {x1}, {y1})).save("look.png")</code>'
        answer = f"<think>So it is.</think><answer>{'none' if habit == 2 else sample.ground_truth}</answer>"
        said = look if turn == 0 and habit < 2 else answer
        return await ScriptedEngine(self._chat, [said]).generate(request)


NUMBERS = {
    "accuracy": 2 / 3,
    "faithful_of_correct": 1 / 2,
    "faithful_of_all": 1 / 3,
    "unfaithful_of_correct": 1 / 2,
    "unfaithful_of_all": 1 / 3,
    "no_tool_of_correct": 0.0,
    "no_tool_of_all": 0.0,
    "shown_of_all": 1 / 3,
    "tool_calls": 2 / 3,
    "red_flags": 1 / 3,
}
"""The audit results of this policy on any questions."""
