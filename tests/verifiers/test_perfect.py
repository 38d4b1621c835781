from dataclasses import replace
from typing import Any

import pytest

from tests.verifiers.cases import CASES, sample, sample_of
from vtune.errors import DataError
from vtune.verifiers.perfect import check_full_marks, perfect_reply

BOX = '[{"label": "Cup", "bbox_2d": [100, 200, 500, 400]}]'


@pytest.mark.parametrize("name", CASES)
def test_every_case_earns_full_marks_with_its_own_ground_truth(name: str) -> None:
    check_full_marks(sample_of(name), None)


@pytest.mark.parametrize("name", CASES)
def test_a_broken_ground_truth_is_reported(name: str) -> None:
    with pytest.raises(DataError):
        check_full_marks(sample_of(name, gold=CASES[name].broken_gold), None)


@pytest.mark.parametrize(
    ("parm", "reply"),
    [
        ({}, "<answer>7</answer>"),
        ({"answer_in": "boxed"}, "\\boxed{7}"),
        ({"answer_in": "reply"}, "7"),
    ],
)
def test_the_perfect_reply_is_in_the_samples_answer_place(parm: dict[str, Any], reply: str) -> None:
    asked = sample("counting", "7", parm=parm)
    assert perfect_reply(asked) == reply
    check_full_marks(asked, None)


@pytest.mark.parametrize(
    "parm",
    [
        {"space": "relative_1000"},
        {"space": "relative_1000", "reply_space": "pixels", "width": 333, "height": 777},
        {"space": "pixels", "reply_space": "shown_pixels", "width": 640, "height": 480},
        {
            "space": "pixels",
            "det_reward_ratio": {"map": 1.0, "iou_max_iou_first": 0.5, "iou_completeness": 0.3},
        },
    ],
)
@pytest.mark.parametrize("verifier", ["detection", "grounding"])
def test_boxes_are_written_in_the_replies_coordinate_space(verifier: str, parm: dict[str, Any]) -> None:
    check_full_marks(sample(verifier, BOX, parm=parm), (640, 480))


def test_a_truth_that_no_reply_can_match_is_reported() -> None:
    twice = '[{"label": "cup", "bbox_2d": [1, 1, 9, 9]}, {"label": "cup", "bbox_2d": [1, 1, 9, 9]}]'
    check_full_marks(sample("detection", twice), None)
    tagged = replace(sample("exact", "a <answer>b</answer>"))
    with pytest.raises(DataError, match="the ground truth itself earns 0"):
        check_full_marks(tagged, None)


def test_a_ground_truth_in_reply_tags_is_reported_with_the_bare_form() -> None:
    tagged = sample_of("exact", gold="<answer>3</answer>")
    with pytest.raises(DataError) as told:
        check_full_marks(tagged, None)
    assert told.value.what == "the ground truth '<answer>3</answer>' is in the tags of a reply"
    assert told.value.fix == "take the tags off: '3'"
