"""Four policies for lens puzzles that differ in whether they look at the sign and whether they read it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from tests.rollout.scripted import ScriptedEngine
from tests.scripted import draw_with
from vtune.data import lens
from vtune.data.lens_reader import Target, read, target_of
from vtune.rollout.engine import Completion, Request
from vtune.schema.parquet import read_samples
from vtune.schema.pixels import decode_picture
from vtune.schema.sample import Sample

Manner = Literal["uses", "ignores", "elsewhere", "none"]
"""uses: looks at the sign and says what it reads, or guesses. ignores: looks at the sign, but already knew
the answer. elsewhere: looks at another place and guesses. none: guesses without a look."""


class Manners(ScriptedEngine):
    """Plays one of them.

    Args:
        policy: Provides words and picture reader.
        samples: The questions.
        manner: Which of the four.
    """

    def __init__(self, policy: Any, samples: Sequence[Sample], manner: Manner, **_: Any) -> None:
        super().__init__(policy.chat, ["never said"])
        self._eyes = policy.pictures
        self._samples = {sample.id: sample for sample in samples}
        self._manner = manner
        self.requests: list[Request] = []
        self.tokens = 0

    async def generate(self, request: Request) -> Completion:
        self.requests.append(request)
        turn, sample = request.key[-1], self._samples[request.question]
        at_once = request.sampling.stop == ("</answer>",)
        if turn == 0 and self._manner != "none" and not at_once:
            x0, y0, x1, y1 = self._place(sample)
            text = f'<think>I look.<code>image.crop(({x0}, {y0}, {x1}, {y1})).save("look.png")</code>'
        else:
            said = f"{self._answer(sample, request)}</answer>"
            text = said if at_once else f"<think>So it is.</think><answer>{said}"
        drawn = await ScriptedEngine(self._chat, [text]).generate(request)
        self.tokens += len(drawn.token_ids)
        return drawn

    def _place(self, sample: Sample) -> tuple[int, int, int, int]:
        x0, y0, x1, y1 = (round(side) for side in sample.evidence[0].bbox)
        if self._manner != "elsewhere":
            return x0, y0, x1, y1
        x, y = (x0 + lens.SIDE // 2) % (lens.SIDE - 56), (y0 + lens.SIDE // 2) % (lens.SIDE - 56)
        return x, y, x + 56, y + 56

    def _answer(self, sample: Sample, request: Request) -> str:
        if self._manner == "ignores":
            return sample.ground_truth
        guess = lens.EASY_DIGITS[sum(sample.id.encode()) % len(lens.EASY_DIGITS)]
        if self._manner != "uses" or len(request.pixels) < 2:
            return guess
        seen = np.asarray(self._eyes.shown(request.pixels[-1]).convert("RGB"))
        target = _target(sample)
        x0, y0, x1, y1 = target.box
        place = np.diag([seen.shape[1] / (x1 - x0), seen.shape[0] / (y1 - y0), 1.0]) @ np.array(
            [[1, 0, -x0], [0, 1, -y0], [0, 0, 1.0]]
        )
        found = read(seen, [place], target)
        return found.digit if found.digit is not None and found.sure else guess


@contextmanager
def playing(manner: Manner, data: Path) -> Iterator[list[Manners]]:
    """Replace the model's engine with such a policy; yields the list of opened engines."""
    samples = list(read_samples(data))
    opened: list[Manners] = []

    def engine(policy: Any, **_: Any) -> Manners:
        opened.append(Manners(policy, samples, manner))
        return opened[-1]

    with pytest.MonkeyPatch.context() as patch:
        draw_with(patch, engine)
        yield opened


def _target(sample: Sample) -> Target:
    x0, y0, x1, y1 = (round(side) for side in sample.evidence[0].bbox)
    colour = sample.evidence[0].label.removesuffix(" sign")
    sign = lens.Sign(colour, sample.ground_truth, (x0, y0, x1, y1))
    assert sample.images[0].data is not None
    pixels = np.asarray(decode_picture(sample.images[0].data))
    found = target_of(lens.Puzzle(pixels, "", sample.ground_truth, sign))
    assert found is not None
    return found
