"""RefCOCO as lmms-eval and VLMEvalKit ask and read it: a box is right from IoU 0.5 up.

Sources: lmms-eval 75571cfe (`tasks/refcoco/utils_rec.py`), VLMEvalKit e8e78f05
(`vlmeval/dataset/refcoco.py`).
"""

import re

from vtune.protocols.placed import size_of, truth_of
from vtune.protocols.protocol import Grade, Rule, said
from vtune.schema.box import Box, iou
from vtune.schema.sample import Sample

ENOUGH = 0.5
"""IoU from which a box is right."""
_DECIMAL = r"(-?\d+(?:\.\d+)?)"
_LMMS = re.compile(rf"\[\s*{_DECIMAL},\s*{_DECIMAL},\s*{_DECIMAL},\s*{_DECIMAL}\s*\]")
_NUMBER = r"([-+]?(?:\d*\.)?\d+(?:[eE][-+]?\d+)?)"
_BETWEEN = r"(?:\s*,\s*|\s+)"
_KIT = re.compile(rf"\[\s*{_BETWEEN.join([_NUMBER] * 4)}\s*\]")
_ANY = re.compile(_NUMBER)


def ask_lmms(question: str, sample: Sample) -> str:
    """Asks for a box in fractions of the picture's sides."""
    return (
        "Bounding box coordinates are specified in the format (top-left x, top-left y, bottom-right x, "
        "bottom-right y). All values are floating point numbers bounded between 0 and 1. Please provide the "
        f"bounding box coordinate of the region this sentence describes: {sample.extra['expression']}"
    )


def grade_lmms(text: str, sample: Sample) -> Grade:
    """The first four numbers in brackets, read as fractions; pixels and thousandths overlap nothing.

    Areas are products of differences, as upstream: a box that is inside out in both directions has one.
    """
    found = _LMMS.search(text)
    if found is None:
        return said(None, right=False)
    width, height = size_of(sample)
    x0, y0, x1, y1 = (float(found[number]) for number in range(1, 5))
    truth = truth_of(sample)
    shares = (truth[0] / width, truth[1] / height, truth[2] / width, truth[3] / height)
    return said(found[0], _loose_iou(shares, (x0, y0, x1, y1)) >= ENOUGH)


def _loose_iou(a: Box, b: Box) -> float:
    across = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    down = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    shared = across * down
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared
    return shared / union if union else 0.0


def ask_as_is(question: str, sample: Sample) -> str:
    """The question from the data."""
    return question


def grade_vlmevalkit(text: str, sample: Sample) -> Grade:
    """The first four numbers in brackets, else the first four of all.

    Up to 1.5 they are fractions of the sides, up to 1000 thousandths, above that pixels: a reply in pixels of
    a picture smaller than 1000 is read as thousandths. Corners are put in order, and clamped to the picture.
    """
    found = _KIT.search(text)
    numbers = list(found.groups()) if found else _ANY.findall(text)[:4]
    if len(numbers) < 4:
        return said(None, right=False)
    width, height = size_of(sample)
    sides = [float(number) for number in numbers]
    largest = max(map(abs, sides))
    unit = 1.0 if largest <= 1.5 else 1000.0 if largest <= 1000 else 0.0
    if unit:
        sides = [side / unit * end for side, end in zip(sides, (width, height) * 2, strict=True)]
    x0, y0, x1, y1 = (min(max(side, 0.0), end) for side, end in zip(sides, (width, height) * 2, strict=True))
    box = (min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1))
    return said(f"[{', '.join(numbers)}]", iou(box, truth_of(sample)) >= ENOUGH)


LMMS = Rule(ask=ask_lmms, grade=grade_lmms, scorer="sources")
VLMEVALKIT = Rule(ask=ask_as_is, grade=grade_vlmevalkit, scorer="sources")
