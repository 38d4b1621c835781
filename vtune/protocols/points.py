"""ScreenSpot-Pro as three scripts ask and read it: a point, or a box whose centre is the point.

Sources: likaixin2000/ScreenSpot-Pro-GUI-Grounding bd8bbbb (`eval_screenspot_pro.py`, `models/gpt4x.py`,
`models/qwen2_5vl.py`), lmms-eval 75571cfe (`tasks/screenspot_pro/utils.py`), VLMEvalKit e8e78f05
(`vlmeval/dataset/GUI/screenspot_pro.py`).
"""

import json
import re
from math import isfinite

from vtune.protocols.placed import size_of, truth_of
from vtune.protocols.protocol import Grade, Rule, said
from vtune.schema.sample import Sample
from vtune.verifiers.spaces import spaces_of

Point = tuple[float, float]

_PAIR = re.compile(r"\[\[(\d+\.\d+|\d+),(\d+\.\d+|\d+)\]\]")
_FOUR = re.compile(r"\[\[(\d+\.\d+|\d+),(\d+\.\d+|\d+),(\d+\.\d+|\d+),(\d+\.\d+|\d+)\]\]")
_CALL, _CALL_END = "<tool_call>\n", "\n</tool_call>"

_NUMBER = r"-?\d+(?:\.\d+)?%?"
_NUMBERS = re.compile(_NUMBER)
_TAG, _TAG_END = re.compile(r"<\s*bbox", re.IGNORECASE), re.compile(r"<\s*/\s*bbox\s*>", re.IGNORECASE)
_BRACKETS = re.compile(rf"[\[(]\s*({_NUMBER})(?:\s*,\s*|\s+)({_NUMBER})\s*[\])]")
_X, _Y = (re.compile(rf"['\"]?{axis}['\"]?\s*[:=]\s*({_NUMBER})", re.IGNORECASE) for axis in "xy")
_BOX_WORDS = ("bbox", "box", "rect")

_CLICK = re.compile(r"x=([\d.]+), y=([\d.]+)")


def ask_official(question: str, sample: Sample) -> str:
    """The request of the authors' script for GPT: a box in fractions of the picture's sides.

    Their script for Qwen2.5-VL instead describes a tool `computer_use` and starts the reply itself; a reply
    of that kind is read as well.
    """
    return (
        "You are asked to find the bounding box of an UI element in the given screenshot corresponding to a "
        "given instruction.\nDon't output any analysis. Output your result in the format of [[x0,y0,x1,y1]], "
        f"with x and y ranging from 0 to 1.The instruction is:\n{sample.extra['instruction']}\n"
    )


def grade_official(text: str, sample: Sample) -> Grade:
    """The point of a tool call, else [[x,y]], else the centre of [[x0,y0,x1,y1]].

    `coordinate` of the call, with two or four numbers, is in the space of replies, everything else in
    fractions of the picture's sides.
    """
    width, height = size_of(sample)
    called = _called(text)
    if called is not None:
        x, y, *_ = spaces_of(sample).to_truth((*called, 0.0, 0.0))
        return _graded((x, y), sample)
    if _CALL in text:
        return said(None, right=False)
    pair, four = _PAIR.search(text), _FOUR.search(text)
    if pair:
        x, y = float(pair[1]), float(pair[2])
    elif four:
        x, y = (float(four[1]) + float(four[3])) / 2, (float(four[2]) + float(four[4])) / 2
    else:
        return said(None, right=False)
    return _graded((x * width, y * height), sample)


def _called(text: str) -> Point | None:
    """The point of the first tool call, None if there is none."""
    _, opened, rest = text.partition(_CALL)
    if not opened:
        return None
    # Upstream cuts the reply after its last brace.
    content = rest[: rest.rfind("}") + 1].partition(_CALL)[0].partition(_CALL_END)[0]
    try:
        found = json.loads(content)["arguments"]["coordinate"]
        numbers = [float(number) for number in found if type(number) in (int, float)]
    except (ValueError, TypeError, KeyError, IndexError, RecursionError, OverflowError):
        return None
    if len(numbers) != len(found) or not all(map(isfinite, numbers)):
        return None
    if len(numbers) == 4:
        numbers = [(numbers[0] + numbers[2]) / 2, (numbers[1] + numbers[3]) / 2]
    return (numbers[0], numbers[1]) if len(numbers) == 2 else None


def ask_lmms(question: str, sample: Sample) -> str:
    """Asks for a point in fractions of the picture's sides."""
    return (
        "Identify the UI element for the instruction and output exactly one click point as [x, y] in "
        "normalized coordinates within [0, 1]. Do not output a bounding box.\n"
        f"Instruction: {sample.extra['instruction']}"
    )


def grade_lmms(text: str, sample: Sample) -> Grade:
    """The first numbers that could be a point; above 1 they are pixels of the stored picture.

    A reply in pixels of the picture as shown, or in thousandths, is therefore read as a different place.
    """
    point = _loose_point(text)
    return said(None, right=False) if point is None else _in_sides_or_pixels(point, sample)


def _loose_point(text: str) -> Point | None:
    """In order: the centre of `<bbox>`, a pair in brackets, x and y by name, the first two numbers."""
    tagged = _tagged_numbers(text)
    if len(tagged) >= 4:
        return _middle(tagged)
    pair = _BRACKETS.search(text)
    if pair:
        return _number(pair[1]), _number(pair[2])
    x = _X.search(text)
    y = _Y.search(text, x.end()) if x else None
    if x and y:
        return _number(x[1]), _number(y[1])
    numbers = _NUMBERS.findall(text)
    if len(numbers) >= 4 and any(word in text.lower() for word in _BOX_WORDS):
        return _middle(numbers)
    return (_number(numbers[0]), _number(numbers[1])) if len(numbers) >= 2 else None


def _tagged_numbers(text: str) -> list[str]:
    """The numbers between the first `<bbox …>` and `</bbox>`; takes linear time."""
    opened = _TAG.search(text)
    begin = text.find(">", opened.end()) if opened else -1
    closed = _TAG_END.search(text, begin + 1) if begin >= 0 else None
    return _NUMBERS.findall(text, begin + 1, closed.start()) if closed else []


def _middle(numbers: list[str]) -> Point:
    x0, y0, x1, y1 = map(_number, numbers[:4])
    return (x0 + x1) / 2, (y0 + y1) / 2


def _number(text: str) -> float:
    return float(text[:-1]) / 100 if text.endswith("%") else float(text)


def ask_vlmevalkit(question: str, sample: Sample) -> str:
    """Asks for a click of pyautogui.

    The system turn that explains the format is lost upstream: the list that contains it is replaced if
    there is one picture.
    """
    request = "Please complete the following tasks by clicking using `pyautogui.click`:"
    return f"{request}\n{sample.extra['instruction']}"


def grade_vlmevalkit(text: str, sample: Sample) -> Grade:
    """The first `x=…, y=…`; above 1 in pixels of the stored picture.

    If there is none, upstream clicks at the upper left corner.
    """
    found = _CLICK.search(text)
    if found is None:
        corner = _graded((0.0, 0.0), sample).score
        return Grade(score=0.0, read=None, fallback=corner)
    try:
        point = float(found[1]), float(found[2])
    except ValueError:  # e.g. 1.2.3
        return said(None, right=False)
    return _in_sides_or_pixels(point, sample)


def _in_sides_or_pixels(point: Point, sample: Sample) -> Grade:
    """The grade of a point, in pixels if a coordinate is above 1, else in fractions of the sides."""
    width, height = size_of(sample)
    x, y = point
    return _graded(point if x > 1 or y > 1 else (x * width, y * height), sample)


def _graded(point: Point, sample: Sample) -> Grade:
    """The grade of a point in pixels of the stored picture; borders count as inside."""
    x, y = point
    x0, y0, x1, y1 = truth_of(sample)
    return said(f"({x:g}, {y:g})", x0 <= x <= x1 and y0 <= y <= y1)


OFFICIAL = Rule(ask=ask_official, grade=grade_official, scorer="levels", reply_space="shown_pixels")
LMMS = Rule(ask=ask_lmms, grade=grade_lmms, scorer="levels")
VLMEVALKIT = Rule(ask=ask_vlmevalkit, grade=grade_vlmevalkit, scorer="levels")
