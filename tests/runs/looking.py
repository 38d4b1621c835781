"""A policy for benchmarks with a predetermined score and faithful share."""

import json
from collections.abc import Mapping, Sequence

from tests.rollout.scripted import ScriptedEngine
from vtune.models.chat import Chat
from vtune.rollout.engine import Completion, Request
from vtune.schema.sample import Sample

HABITS = "fuwxffux"
"""One letter per question: f looks at the target and is right; u looks elsewhere and is right; w is wrong
without a look; x looks at the target and says nothing readable."""

BOX = (3000, 700, 400, 300)
"""Box of the target: x, y, width, height."""

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
"""The audit results for eight questions."""

PLACES: Mapping[str, tuple[int, int, int, int]] = {
    "f": (2900, 600, 3500, 1100),
    "x": (3000, 700, 3400, 1000),
    "u": (100, 100, 700, 600),
}


class Looking(ScriptedEngine):
    """Plays HABITS over the questions, in order; gives the right letter in a sentence, as text or alone."""

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
            text = self.look(PLACES[habit]) or text
        return await ScriptedEngine(self._chat, [text]).generate(request)

    def look(self, place: tuple[int, int, int, int]) -> str:
        """A turn that looks at a region of a 4000 x 2000 photograph."""
        return f'<think>I look.<code>image.crop({place}).save("look.png")</code>'


class Zooming(Looking):
    """Looks with `image_zoom_in_tool`, in thousandths."""

    def look(self, place: tuple[int, int, int, int]) -> str:
        x0, y0, x1, y1 = place
        box = [x0 // 4, y0 // 2, x1 // 4, y1 // 2]
        call = json.dumps({"name": "image_zoom_in_tool", "arguments": {"bbox_2d": box}})
        return f"<think>I look.</think>\n<tool_call>\n{call}\n</tool_call>"


class Guessing(Looking):
    """Answers at once."""

    def look(self, place: tuple[int, int, int, int]) -> str:
        return ""
