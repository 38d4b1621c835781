"""Pointing: does the point lie in the box?"""

import re
from typing import Any

from vtune.schema.box import Box
from vtune.schema.sample import Sample
from vtune.schema.verdict import Verdict
from vtune.verifiers import VERIFIERS
from vtune.verifiers.boxes import truth_boxes, value_in
from vtune.verifiers.spaces import SPACE_OPTIONS, coordinates_in_words, spaces_of
from vtune.verifiers.typesetting import said_by
from vtune.verifiers.verifier import (
    Case,
    Verifier,
    answered,
    given_answer,
    no_answer,
    options,
    quote,
    unreadable,
)

NAME = "point_in_box"

_NUMBER = r"\s*(-?\d{1,9}(?:\.\d{1,9})?)\s*"
_POINT = re.compile(rf"[\[(]?{_NUMBER},{_NUMBER}[\])]?", re.ASCII)
_KEY = "point_2d"
_HALF_WIDTH = {0x3000: " "} | {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
"""Full-width forms only: NFKC would turn 15² into 152."""
_FURTHEST = 1e9
"""Upper bound on coordinates of a point; ours."""


def verify_point_in_box(reply: str, sample: Sample) -> Verdict:
    """Score 1 where the answer is a point in a box of the ground truth, borders included, else 0.

    The whole answer must be `(x, y)`, `[x, y]`, `x, y` or `{"point_2d": [x, y]}`, with any formatting
    (`（x，y）`, `**(x, y)**`); a point may be the only one in a list, and an object may have a label and a
    code fence, as Qwen's models write it. The ground truth is
    a list of boxes as for `grounding`; the options of `verifier_parm` are those of `spaces_of`, and
    `answer_in`.

    Source: ScreenSpot-Pro's official evaluation; there, too, an answer without a point is wrong and counted
    separately.

    Raises:
        DataError: As for `check_point_in_box`.
    """
    boxes = _boxes(sample)
    given = given_answer(reply, sample)
    if given is None:
        return no_answer(sample)
    point = point_in(given)
    if point is None:
        return unreadable(f"{quote(given)} is not a point")
    x, y, *_ = spaces_of(sample).to_truth((*point, 0.0, 0.0))
    hit = any(x0 <= x <= x1 and y0 <= y <= y1 for x0, y0, x1, y1 in boxes)
    return answered(float(hit), f"({x:g}, {y:g}) is {'in' if hit else 'outside of'} the box")


def check_point_in_box(sample: Sample) -> None:
    """Check that the ground truth holds a box that lies in the picture.

    Raises:
        DataError: If not, or if an option is unknown or of the wrong type.
    """
    _boxes(sample)


def point_form(sample: Sample) -> str:
    """What an answer looks like."""
    return f"one point (x, y), {coordinates_in_words(sample)}"


def right_point(sample: Sample) -> str:
    """The middle of the first box, in the space of replies.

    Raises:
        DataError: As for `truth_boxes`.
    """
    spaces = spaces_of(sample)
    x0, y0, x1, y1 = spaces.to_reply(truth_boxes(sample, labelled=False)[0].box)
    return f"({(x0 + x1) / 2:f}, {(y0 + y1) / 2:f})"


def point_in(text: str) -> tuple[float, float] | None:
    """The point (x, y) that a complete text stands for; None if it is not one."""
    plain = said_by(text).translate(_HALF_WIDTH).removesuffix(".").removesuffix("。")
    bare = _POINT.fullmatch(plain)
    if bare is not None:
        return float(bare[1]), float(bare[2])
    value = value_in(plain)
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
    point: Any = value.get(_KEY) if isinstance(value, dict) else value
    if not isinstance(point, list | tuple) or len(point) != 2:
        return None
    if not all(type(side) in (int, float) and abs(side) < _FURTHEST for side in point):
        return None
    x, y = map(float, point)
    return x, y


def _boxes(sample: Sample) -> list[Box]:
    options(sample, SPACE_OPTIONS | {"answer_in"})
    return [entry.box for entry in truth_boxes(sample, labelled=False)]


VERIFIERS.add(
    NAME,
    Verifier(
        verify_point_in_box,
        check_point_in_box,
        point_form,
        Case(
            gold="(30, 30)",
            broken_gold="(30, 30)",
            wrong="(80, 80)",
            truth='[{"label": "", "bbox_2d": [10, 10, 50, 50]}]',
        ),
        right=right_point,
        answers_in_boxes=True,
        self_contained=True,
    ),
)
