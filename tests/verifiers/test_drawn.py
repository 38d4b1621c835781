"""Boxes of truths and answers for display: in pixels of the stored picture, and never an error."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtune.schema.message import Message
from vtune.schema.sample import Sample
from vtune.verifiers.boxes import LabelledBox
from vtune.verifiers.drawn import answer_in_pixels, asks_for_boxes, truth_in_pixels

SIZE = (400, 200)


def asking(boxes: str, verifier: str = "detection", **parm: Any) -> Sample:
    return Sample(
        id="s/1",
        source="s",
        prompt=(Message("user", "?"),),
        ground_truth=boxes,
        verifier=verifier,
        verifier_parm=parm,
    )


def cup(*box: float) -> str:
    return json.dumps([{"label": "Cup", "bbox_2d": box}])


def answered(text: str) -> str:
    return f"I see it.\n<answer>{text}</answer>"


@pytest.mark.parametrize(
    ("parm", "truth", "reply"),
    [
        ({}, (40, 20, 80, 60), (40, 20, 80, 60)),
        ({"space": "relative_1000"}, (100, 100, 200, 300), (100, 100, 200, 300)),
        ({"det_verifier_normalized": True}, (100, 100, 200, 300), (100, 100, 200, 300)),
        ({"reply_space": "relative_1000"}, (40, 20, 80, 60), (100, 100, 200, 300)),
        ({"reply_space": "shown_pixels"}, (40, 20, 80, 60), (20, 10, 40, 30)),
        ({"space": "relative_1000", "reply_space": "shown_pixels"}, (100, 100, 200, 300), (20, 10, 40, 30)),
    ],
)
def test_truth_and_answer_are_in_pixels_of_the_stored_picture(
    parm: dict[str, Any], truth: tuple[float, ...], reply: tuple[float, ...]
) -> None:
    sample = asking(cup(*truth), **parm)
    wanted = [LabelledBox("cup", (40.0, 20.0, 80.0, 60.0))]
    assert truth_in_pixels(sample, SIZE) == wanted
    assert answer_in_pixels(answered(cup(*reply)), sample, SIZE, (200, 100)) == wanted


def test_truth_and_answer_overlap_as_in_the_verifier_whatever_the_stated_size() -> None:
    sample = asking(cup(100, 100, 200, 300), space="relative_1000", width=800, height=400)
    answer = answer_in_pixels(answered(cup(100, 100, 200, 300)), sample, SIZE, None)
    assert answer == truth_in_pixels(sample, SIZE) == [LabelledBox("cup", (40.0, 20.0, 80.0, 60.0))]


def test_a_point_is_a_box_without_a_side() -> None:
    sample = asking(cup(40, 20, 80, 60), "point_in_box", reply_space="relative_1000")
    (point,) = answer_in_pixels(answered("(500, 250)"), sample, SIZE, None)
    assert point.box == (200.0, 50.0, 200.0, 50.0)
    assert answer_in_pixels(answered("there"), sample, SIZE, None) == []


@pytest.mark.parametrize(
    ("truth", "parm"), [("a cup", {}), (cup(80, 20, 40, 60), {}), (cup(40, 20, 80, 60), {"space": "miles"})]
)
def test_a_truth_that_cannot_be_drawn_is_left_out(truth: str, parm: dict[str, Any]) -> None:
    assert truth_in_pixels(asking(truth, **parm), SIZE) == []


@pytest.mark.parametrize(
    ("reply", "parm"),
    [
        ("a cup", {}),
        (cup(80, 20, 40, 60), {}),
        (cup(40, 20, 80, 60), {"space": "miles"}),
        (cup(40, 20, 80, 60), {"answer_in": "nowhere"}),
    ],
)
def test_an_answer_that_cannot_be_drawn_is_left_out(reply: str, parm: dict[str, Any]) -> None:
    assert answer_in_pixels(answered(reply), asking(cup(40, 20, 80, 60), **parm), SIZE, None) == []


def test_replies_in_shown_pixels_need_the_shown_size() -> None:
    sample = asking(cup(40, 20, 80, 60), reply_space="shown_pixels")
    assert answer_in_pixels(answered(cup(20, 10, 40, 30)), sample, SIZE, None) == []


@given(st.text(max_size=40), st.text(max_size=40))
def test_any_text_is_drawn_or_skipped_without_an_error(truth: str, reply: str) -> None:
    for verifier in ("detection", "grounding", "point_in_box"):
        sample = asking(truth, verifier)
        truth_in_pixels(sample, SIZE)
        answer_in_pixels(answered(reply), sample, SIZE, (200, 100))


def test_only_place_verifiers_expect_boxes() -> None:
    sample = asking(cup(40, 20, 80, 60))
    assert [asks_for_boxes(replace(sample, verifier=name)) for name in ("detection", "exact", "unknown")] == [
        True,
        False,
        False,
    ]
