"""A policy on benchmarks whose score and faithful share are known beforehand."""

from collections.abc import Mapping, Sequence

from vtune.models.chat import Chat
from vtune.rollout.engine import Completion, Request
from vtune.rollout.scripted import ScriptedEngine
from vtune.schema.sample import Sample

HABITS = "fuwxffux"
"""A letter a question: f looks at the target and is right; u looks elsewhere and is right; w is wrong without
a look; x looks at the target and says nothing that can be read."""

BOX = (3000, 700, 400, 300)
"""Of the target, x, y, width, height."""

NUMBERS = {
    "accuracy": 5 / 8,
    "faithful_of_correct": 3 / 5,
    "faithful_of_all": 3 / 8,
    "unfaithful_of_correct": 2 / 5,
    "unfaithful_of_all": 2 / 8,
    "no_tool_of_correct": 0.0,
    "no_tool_of_all": 0.0,
    "shown_of_all": 5 / 8,
    "tool_calls": 7 / 8,
    "red_flags": 0.0,
}
"""What an audit of eight questions says."""

PLACES: Mapping[str, tuple[int, int, int, int]] = {
    "f": (2900, 600, 3500, 1100),
    "x": (3000, 700, 3400, 1000),
    "u": (100, 100, 700, 600),
}


class Looking(ScriptedEngine):
    """Plays HABITS over the questions, in order; the right letter is said in a sentence, as text or alone."""

    def __init__(self, chat: Chat, samples: Sequence[Sample]) -> None:
        super().__init__(chat, ["never said"])
        self._samples = samples

    async def generate(self, request: Request) -> Completion:
        *_, number, _, turn = request.key
        sample, habit = self._samples[number], HABITS[number % len(HABITS)]
        right = sample.ground_truth
        said = {
            "f": f"It is {right}.",
            "u": f"I think {sample.choices['ABCD'.index(right)]}",
            "w": "B" if right == "A" else "A",
            "x": "I cannot tell.",
        }[habit]
        text = f"<think>So it is.</think><answer>{said}</answer>"
        if turn == 0 and habit in PLACES:
            text = f'<think>I look.<code>image.crop({PLACES[habit]}).save("look.png")</code>'
        return await ScriptedEngine(self._chat, [text]).generate(request)
