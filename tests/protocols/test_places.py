"""How ScreenSpot-Pro's and RefCOCO's scripts read awkward replies; verdicts are those of the upstream rules."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtune.protocols import PROTOCOLS
from vtune.protocols.protocol import Grade, Rule, put
from vtune.protocols.specimens import OTHER_FORMS, SPECIMENS
from vtune.schema.sample import Sample

# The true box is (20, 20) to (70, 60) in a picture of 200 x 100 pixels, shown at 100 x 50.
R, W, NO = "right", "wrong", "unreadable"


def rule_of(protocol: str, kind: str) -> Rule:
    rule = PROTOCOLS[protocol].rule(kind)
    assert rule is not None
    return rule


def verdict(grade: Grade) -> str:
    return NO if grade.unreadable else R if grade.score == 1.0 else W


def shown(kind: str) -> Sample:
    sample = SPECIMENS[kind][0]
    return replace(sample, verifier_parm={**sample.verifier_parm, "reply_space": "shown_pixels"})


def call(coordinate: str) -> str:
    body = f'{{"name": "computer_use", "arguments": {{"action": "left_click", "coordinate": {coordinate}}}}}'
    return f"<tool_call>\n{body}\n</tool_call>"


# reply -> verdict of the authors, lmms-eval, VLMEvalKit
POINTS: dict[str, tuple[str, str, str]] = {
    "[[0.2,0.4]]": (R, R, NO),
    "[[0.2, 0.4]]": (NO, R, NO),
    "[0.2, 0.4]": (NO, R, NO),
    "[[0.1,0.2,0.35,0.6]]": (R, R, NO),
    "[[0.8,0.8,0.9,0.9]]": (W, W, NO),
    "[[0.1,0.2]]": (R, R, NO),
    "[[0.35,0.6]]": (R, R, NO),
    "[[0.36,0.6]]": (W, W, NO),
    "(45, 40)": (NO, R, NO),
    "(45,40)": (NO, R, NO),
    "[[45,40]]": (W, R, NO),
    "[[225,400]]": (W, W, NO),
    "pyautogui.click(x=45, y=40)": (NO, R, R),
    "pyautogui.click(x=0.2, y=0.4)": (NO, R, R),
    "pyautogui.click(x=45,y=40)": (NO, R, NO),
    "click(x=1.2.3, y=4)": (NO, W, NO),
    "x=190, y=90": (NO, W, W),
    "pyautogui.click(45, 40)": (NO, R, NO),
    call("[22, 20]"): (R, R, NO),
    call("[45, 40]"): (W, R, NO),
    call("[10, 10, 35, 30]"): (R, W, NO),
    call("[10, 10, 35]"): (NO, W, NO),
    call('["22", "20"]'): (NO, R, NO),
    call("22"): (NO, NO, NO),
    "<tool_call>\nclick [22, 20]": (NO, R, NO),
    call("[22, 20]") + "\n" + call("[99, 49]"): (R, R, NO),
    "20% from the left, 40% from the top": (NO, R, NO),
    "<bbox>20, 20, 70, 60</bbox> [0.9, 0.9]": (NO, R, NO),
    "<bbox>20, 20</bbox> [0.9, 0.9]": (NO, W, NO),
    "The box is 20 20 70 60": (NO, R, NO),
    "From 20 20 to 70 60": (NO, R, NO),
    "The rectangle 0 0 90 80": (NO, R, NO),
    "Step 1: look. Step 2: (45, 40)": (NO, R, NO),
    "'x': 45, then 'y': 40": (NO, R, NO),
    "x is 45, y is 40": (NO, R, NO),
    "1 point": (NO, NO, NO),
    "": (NO, NO, NO),
    "nowhere": (NO, NO, NO),
    "[-1, -1]": (NO, W, NO),
    "[1, 1]": (NO, W, NO),
    "[[0.2,0.4]] or [[0.9,0.9]]": (R, R, NO),
}
POINT_READERS = ("official", "lmms-eval", "vlmevalkit")


@pytest.mark.parametrize("number", range(3), ids=POINT_READERS)
def test_points_are_read_like_upstream(number: int) -> None:
    assert len(POINTS) >= 30
    rule = rule_of(POINT_READERS[number], "screenspot_pro")
    found = {reply: verdict(rule.grade(reply, shown("screenspot_pro"))) for reply in POINTS}
    assert found == {reply: wanted[number] for reply, wanted in POINTS.items()}


def test_a_tool_call_uses_the_coordinate_space_of_replies() -> None:
    rule, sample = rule_of("official", "screenspot_pro"), SPECIMENS["screenspot_pro"][0]
    assert rule.reply_space == "shown_pixels"
    assert verdict(rule.grade(call("[45, 40]"), sample)) == R  # in pixels of the file
    thousandths = replace(sample, verifier_parm={**sample.verifier_parm, "reply_space": "relative_1000"})
    assert verdict(rule.grade(call("[225, 400]"), thousandths)) == R
    assert verdict(rule.grade(call("[45, 40]"), thousandths)) == W
    assert PROTOCOLS["paper"].rule("screenspot_pro") is rule


def test_without_a_click_vlmevalkit_clicks_at_the_corner() -> None:
    rule, sample = rule_of("vlmevalkit", "screenspot_pro"), SPECIMENS["screenspot_pro"][0]
    assert rule.grade("no", sample).fallback == 0.0
    corner = replace(sample, ground_truth='[{"label": "", "bbox_2d": [0, 0, 9, 9]}]')
    grade = rule.grade("no", corner)
    assert (grade.score, grade.fallback, grade.unreadable) == (0.0, 1.0, True)


# reply -> verdict of lmms-eval (RefCOCO), of VLMEvalKit
BOXES: dict[str, tuple[str, str]] = {
    "[0.1, 0.2, 0.35, 0.6]": (R, R),
    "[0.1,0.2,0.35,0.6]": (R, R),
    "[0.1 0.2 0.35 0.6]": (NO, R),
    "(0.1, 0.2, 0.35, 0.6)": (NO, R),
    "0.1, 0.2, 0.35, 0.6": (NO, R),
    "[20, 20, 70, 60]": (W, W),
    "[100, 200, 350, 600]": (W, R),
    "[2000, 20, 70, 60]": (W, W),
    "[1.2, 0.2, 0.35, 0.6]": (W, W),
    "[0.35, 0.6, 0.1, 0.2]": (W, R),
    "[0.1, 0.2, 0.35, 0.6] [0, 0, 1, 1]": (R, R),
    "[0, 0, 1, 1] [0.1, 0.2, 0.35, 0.6]": (W, W),
    "[0, 0, 1, 1]": (W, W),
    "[0.1, 0.2, 0.35]": (NO, NO),
    "[0.1, 0.2, 0.35, 0.6, 0.7]": (NO, R),
    "In 2 steps: [0.1, 0.2, 0.35, 0.6]": (R, R),
    "In 2 steps: 0.1, 0.2, 0.35, 0.6": (NO, W),
    '{"bbox_2d": [0.1, 0.2, 0.35, 0.6]}': (R, R),
    '{"x1": 0.1, "y1": 0.2, "x2": 0.35, "y2": 0.6}': (NO, W),
    "[.1, .2, .35, .6]": (NO, R),
    "[1e-1, 2e-1, 3.5e-1, 6e-1]": (NO, R),
    "[1e2, 2e2, 3.5e2, 6e2]": (NO, R),
    "[+0.1, +0.2, +0.35, +0.6]": (NO, R),
    "[-0.1, 0.2, 0.35, 0.6]": (R, R),
    "[-0.9, 0.2, 0.35, 0.6]": (W, R),
    "[0.1, 0.2, 0.35, 0.41]": (R, R),
    "[0.1, 0.2, 0.35, 0.39]": (W, W),
    "[ 0.1,  0.2, 0.35, 0.6 ]": (R, R),
    "[x1, y1, x2, y2]": (NO, W),
    "[0.1; 0.2; 0.35; 0.6]": (NO, R),
    "nothing": (NO, NO),
    "": (NO, NO),
    "[1e999, 0, 0, 0]": (NO, W),
}
BOX_READERS = (("lmms-eval", "refcoco"), ("vlmevalkit", "refcoco_tsv"))


@pytest.mark.parametrize("number", range(2), ids=["lmms-eval", "vlmevalkit"])
def test_boxes_are_read_like_upstream(number: int) -> None:
    assert len(BOXES) >= 30
    protocol, kind = BOX_READERS[number]
    rule = rule_of(protocol, kind)
    found = {reply: verdict(rule.grade(reply, SPECIMENS[kind][0])) for reply in BOXES}
    assert found == {reply: wanted[number] for reply, wanted in BOXES.items()}


def test_place_prompts_match_upstream_byte_for_byte() -> None:
    sample = SPECIMENS["screenspot_pro"][0]
    asked = {name: put(sample, rule_of(name, "screenspot_pro")).prompt[-1].content for name in POINT_READERS}
    assert asked == {
        "official": "<image>You are asked to find the bounding box of an UI element in the given screenshot corresponding to "
        "a given instruction.\nDon't output any analysis. Output your result in the format of [[x0,y0,x1,y1]], with x and y "
        "ranging from 0 to 1.The instruction is:\nsave\n",
        "lmms-eval": "<image>Identify the UI element for the instruction and output exactly one click point as [x, y] in "
        "normalized coordinates within [0, 1]. Do not output a bounding box.\nInstruction: save",
        "vlmevalkit": "<image>Please complete the following tasks by clicking using `pyautogui.click`:\nsave",
    }
    text = put(SPECIMENS["refcoco"][0], rule_of("lmms-eval", "refcoco")).prompt[-1].content
    assert text == (
        "<image>Bounding box coordinates are specified in the format (top-left x, top-left y, bottom-right x, bottom-right "
        "y). All values are floating point numbers bounded between 0 and 1. Please provide the bounding box coordinate of "
        "the region this sentence describes: white sign"
    )


RULES = [
    (name, kind) for name, protocol in PROTOCOLS.items() for kind in OTHER_FORMS if kind in protocol.rules
]


@pytest.mark.parametrize(("name", "kind"), RULES)
@given(
    text=st.text(st.sampled_from("0123456789.,:;=-+%eExy()[]{}<>/ \n\"'boxtool_callcoordinate"), max_size=80)
)
def test_no_reply_raises(name: str, kind: str, text: str) -> None:
    rule = rule_of(name, kind)
    for reply in (text, call(text), f"<bbox>{text}"):
        grade = rule.grade(reply, shown(kind))
        assert grade == rule.grade(reply, shown(kind))
        assert grade.score in (0.0, 1.0)
        assert grade.score <= grade.fallback <= 1.0


@pytest.mark.parametrize(("name", "kind"), RULES)
@pytest.mark.parametrize(
    "piece",
    ["[1 ", "[1,", "x=1", "<bbox", "<bbox>", "1", "1.", "< ", "<tool_call>\n", "[[1,", "(  ", "[" * 9],
)
def test_long_place_replies_are_graded_quickly(name: str, kind: str, piece: str) -> None:
    rule_of(name, kind).grade(
        piece * (60_000 // len(piece)), shown(kind)
    )  # quadratic time would take minutes


@given(
    corners=st.tuples(*[st.floats(0, 1) for _ in range(4)]),
    truth=st.tuples(*[st.integers(0, 100) for _ in range(4)]),
)
def test_valid_relative_boxes_get_the_same_verdict_from_all_rules_and_grounding(
    corners: tuple[float, ...], truth: tuple[int, ...]
) -> None:
    """For a valid box inside the picture all three rules are the same: an IoU of at least 0.5."""
    x0, x1 = sorted(corners[:2])
    y0, y1 = sorted(corners[2:])
    a0, a1 = sorted(truth[:2])
    b0, b1 = sorted(truth[2:])
    sample = replace(
        SPECIMENS["refcoco"][0],
        ground_truth=f'[{{"label": "", "bbox_2d": [{a0}, {b0}, {a1 + 5}, {b1 + 5}]}}]',
        verifier_parm={**SPECIMENS["refcoco"][0].verifier_parm, "width": 110, "height": 110},
    )
    said = [round(x0, 4), round(y0, 4), round(x1, 4), round(y1, 4)]
    box = [side * 110 for side in said]
    across = min(box[2], a1 + 5) - max(box[0], a0)
    down = min(box[3], b1 + 5) - max(box[1], b0)
    shared = max(across, 0.0) * max(down, 0.0)
    union = (box[2] - box[0]) * (box[3] - box[1]) + (a1 + 5 - a0) * (b1 + 5 - b0) - shared
    if abs(shared / union - 0.5) < 1e-6:
        return
    wanted = float(shared / union > 0.5)
    for protocol, kind in BOX_READERS:
        reply = "[" + ", ".join(f"{side:.4f}" for side in said) + "]"
        assert rule_of(protocol, kind).grade(reply, sample).score == wanted
    ours = PROTOCOLS["vtune"].other
    assert ours is not None
    assert ours.grade(f"<answer>{box}</answer>", sample).score == wanted
