"""Boxes as models write them, and as ground truth stores them."""

import ast
import json
import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from vtune.errors import DataError
from vtune.schema.box import Box, proper
from vtune.schema.sample import Sample
from vtune.verifiers.exact import normalise
from vtune.verifiers.spaces import coordinates_in_words, pixels_of, spaces_of
from vtune.verifiers.verifier import given_answer, where, wrong_option

LONGEST = 20_000
"""Limit on the characters of an answer that is parsed; ours: some 400 labelled boxes."""
_FURTHEST = 1e12
"""Upper bound on coordinates of a box; ours."""
NOWHERE: Box = (0.0, 0.0, 0.0, 0.0)
"""Represents a box that is inside out or not a box at all: it overlaps nothing, but it counts."""

CUP_AND_PEN = '[{"label": "cup", "bbox_2d": [10, 10, 50, 50]}, {"label": "pen", "bbox_2d": [60, 10, 70, 90]}]'
ELSEWHERE = '[{"label": "cup", "bbox_2d": [60, 60, 99, 99]}, {"label": "pen", "bbox_2d": [0, 0, 5, 5]}]'
SQUARE = MappingProxyType({"space": "pixels", "width": 100, "height": 100, "iou": 0.5})
"""Options of the examples used to test box verifiers."""

_FENCE = re.compile(r"```(?:json|python)?(.*)```", re.DOTALL | re.IGNORECASE)
_TAGS = re.compile(r"\s*<answer>(.*)</answer>\s*", re.DOTALL)


@dataclass(frozen=True, slots=True, order=True)
class LabelledBox:
    """A box and its label."""

    label: str
    """Normalised as by `normalise`."""
    box: Box


def boxes_in(text: str, *, keys: Sequence[str] = ("bbox_2d", "bbox")) -> list[LabelledBox] | None:
    """The boxes in a text that consists of nothing else; None if it contains anything else.

    `[{"bbox_2d": [x0, y0, x1, y1], "label": "cup"}, …]`, in JSON or with single quotes (V-Triune, figure
    8), with or without a code fence; also a single such object, one per line, a bare `[x0, y0, x1, y1]`, or a
    list of these. Parentheses may replace brackets, as in Python, and `[[x0, y0], [x1, y1]]` is a box. A
    missing label is empty, a whole number becomes its digits. An entry whose `bbox_2d` is not a proper box
    counts as a box that overlaps nothing, i.e. a false alarm. V-Triune's server also repairs a truncated
    list; here such an answer cannot be read.

    Args:
        text: An answer.
        keys: Possible keys of an object's box; the first one present counts.
    """
    value = value_in(text)
    if isinstance(value, dict) or (isinstance(value, list | tuple) and _numbers(_flat(value))):
        value = [value]
    if not isinstance(value, list | tuple):
        return None
    found = [_entry(item, keys) for item in value]
    return [entry for entry in found if entry is not None] if None not in found else None


def value_in(text: str) -> Any:
    """The value of a complete text, in JSON or as a Python literal, with or without a code fence; else None.

    Objects on separate lines form a list.
    """
    text = text.strip()
    fenced = _FENCE.fullmatch(text)
    text = fenced[1].strip() if fenced else text
    value = _literal(text)
    return _lines(text) if value is None else value


def answered_boxes(reply: str, sample: Sample) -> tuple[LabelledBox, ...] | None:
    """The boxes of a reply's answer in pixels of the stored picture; None if it does not list boxes.

    Raises:
        DataError: As for `given_answer` and `pixels_of`.
    """
    given = given_answer(reply, sample)
    found = boxes_in(given) if given is not None else None
    if found is None:
        return None
    spaces = pixels_of(sample)
    return tuple(LabelledBox(entry.label, spaces.to_truth(entry.box)) for entry in found)


def stated_boxes(truth: str) -> list[LabelledBox] | None:
    """The boxes listed in a ground truth, unchanged and unchecked; None if it lists none."""
    tagged = _TAGS.fullmatch(truth)  # as in V-Triune's files
    return boxes_in(tagged[1] if tagged else truth, keys=("bbox_2d",))  # COCO's `bbox` has width and height


def truth_boxes(sample: Sample, *, labelled: bool) -> list[LabelledBox]:
    """The boxes of a ground truth, in its own space; with or without their labels.

    Empty if it is `[]`, and `may_be_empty` in verifier_parm allows that.

    Raises:
        DataError: If it contains no box, one that is improper or outside its picture, or, if labels count,
            one without a label; or if all seem to be fractions of the sides.
    """
    text = sample.ground_truth
    found = stated_boxes(text)
    if found == [] and _may_be_empty(sample):
        return []
    if not found:
        raise DataError(
            f"the ground truth {text!r:.80} holds no boxes",
            where=where(sample),
            fix='write JSON: [{"label": "cup", "bbox_2d": [x0, y0, x1, y1]}]',
        )
    spaces = spaces_of(sample, shown=False)
    for entry in found:
        if not proper(entry.box):
            raise DataError(
                f"the ground truth {text!r:.80} has a box that is empty or not four numbers",
                where=where(sample),
                fix="write [x0, y0, x1, y1] with x0 < x1 and y0 < y1",
            )
        if not spaces.holds(entry.box):
            raise DataError(
                f"the ground truth's box {list(entry.box)} is outside of its picture",
                where=where(sample),
                fix="check that `space`, `width` and `height` in verifier_parm are those of the boxes",
            )
        if labelled and not entry.label:
            raise DataError(
                "the ground truth has a box without a label",
                where=where(sample),
                fix="add labels, or use verifier `grounding`, which needs none",
            )
    if all(_in_shares(entry.box) for entry in found) and min(spaces.x_end or 2, spaces.y_end or 2) > 1:
        raise DataError(
            f"the boxes of the ground truth {text!r:.80} are fractions of the sides",
            where=where(sample),
            fix="write pixels, or thousandths of the sides with `space: relative_1000` in verifier_parm",
        )
    return found if labelled else without_labels(found)


def boxes_form(sample: Sample) -> str:
    """What an answer looks like (V-Triune, figure 8); also for grounding, which ignores the labels."""
    entry = '{"bbox_2d": [x0, y0, x1, y1], "label": "…"}'
    return f"a JSON list of {entry}, one for each instance, {coordinates_in_words(sample)}"


def right_boxes(sample: Sample) -> str:
    """The answer that gives the ground truth, labels included, in the space of replies.

    Raises:
        DataError: As for `truth_boxes`.
    """
    return _written(truth_boxes(sample, labelled=True), sample)


def right_unlabelled_boxes(sample: Sample) -> str:
    """`right_boxes` without labels.

    Raises:
        DataError: As for `truth_boxes`.
    """
    return _written(truth_boxes(sample, labelled=False), sample)


def _written(entries: list[LabelledBox], sample: Sample) -> str:
    spaces = spaces_of(sample)
    return json.dumps(
        [{"label": entry.label, "bbox_2d": list(spaces.to_reply(entry.box))} for entry in entries]
    )


def without_labels(boxes: list[LabelledBox]) -> list[LabelledBox]:
    """The same boxes, all with the same label."""
    return [LabelledBox("", entry.box) for entry in boxes]


def box_of(value: Any) -> Box | None:
    """A value as a box: `NOWHERE` if its four numbers form none, None if it is not four numbers."""
    if not isinstance(value, list | tuple):
        return None
    value = _flat(value)
    if len(value) != 4 or not _numbers(value):
        return None
    if not all(abs(side) < _FURTHEST for side in value):  # also catches NaN
        return NOWHERE
    x0, y0, x1, y1 = map(float, value)
    box = (x0, y0, x1, y1)
    return box if proper(box) else NOWHERE


def _in_shares(box: Box) -> bool:
    """Whether it lies within the picture's first pixel, and not only on its borders."""
    return max(box) <= 1 and any(side % 1 for side in box)


def _may_be_empty(sample: Sample) -> bool:
    value = sample.verifier_parm.get("may_be_empty", False)
    if value is not None and not isinstance(value, bool):
        raise wrong_option(sample, "may_be_empty", value, "true or false")
    return bool(value)


def _literal(text: str) -> Any:
    """The value of a text in JSON or as a Python literal; None if it is neither."""
    if len(text) > LONGEST:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        with warnings.catch_warnings(action="ignore"):  # Python warns about odd escapes, which models write
            return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return None


def _lines(text: str) -> list[Any] | None:
    """The objects of a text with one per line, or None if it is anything else."""
    lines = [line.strip().removesuffix(",") for line in text.split("\n") if line.strip()]
    if not lines or len(text) > LONGEST or not all(line[:1] == "{" and line[-1] == "}" for line in lines):
        return None
    found = [_literal(line) for line in lines]
    return found if all(isinstance(one, dict) for one in found) else None


def _flat(value: Sequence[Any]) -> Sequence[Any]:
    """Two corners as four numbers; anything else unchanged."""
    corners = len(value) == 2 and all(isinstance(one, list | tuple) and len(one) == 2 for one in value)
    return [side for corner in value for side in corner] if corners else value


def _entry(item: Any, keys: Sequence[str]) -> LabelledBox | None:
    """One box of a list; None if the item cannot be a box."""
    if isinstance(item, list | tuple):
        box = box_of(item)
        return LabelledBox("", box) if box is not None else None
    key = next((key for key in keys if key in item), None) if isinstance(item, dict) else None
    if key is None:
        return None
    box = box_of(item[key])
    label = item.get("label", "")
    if type(label) is int and abs(label) < _FURTHEST:  # e.g. a house number, as its digits
        label = str(label)
    return LabelledBox(normalise(label) if isinstance(label, str) else "", NOWHERE if box is None else box)


def _numbers(values: Sequence[Any]) -> bool:
    return bool(values) and all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
