"""The end of a question states where and how its answer is read."""

from dataclasses import replace

import pytest

from tests.verifiers.cases import CASES, sample, sample_of
from vtune.errors import DataError
from vtune.verifiers import VERIFIERS
from vtune.verifiers.answer_instruction import asked, missing_marks, self_contained

EVERY = pytest.mark.parametrize("name", sorted(CASES))


@EVERY
def test_a_completed_question_names_place_and_format_once(name: str) -> None:
    whole = self_contained(sample_of(name))
    assert asked(whole).startswith(asked(sample_of(name)))
    assert asked(whole).count("<answer>") == 1
    assert asked(whole).count(VERIFIERS[name].form(whole)) == 1
    assert missing_marks(whole) == ()
    assert self_contained(whole) == whole


@pytest.mark.parametrize(
    ("parm", "ratio", "marks"),
    [
        ({}, 0.0, ("<think>", "<answer>")),
        ({"answer_in": "boxed"}, 0.0, ("\\boxed",)),
        ({"answer_in": "boxed"}, 0.1, ("<think>", "<answer>", "\\boxed")),
        ({"answer_in": "reply"}, 0.0, ()),
        ({"answer_in": "reply"}, 0.1, ("<think>", "<answer>")),
    ],
)
def test_the_missing_marks_are_those_read_by_verifier_and_format_reward(
    parm: dict[str, str], ratio: float, marks: tuple[str, ...]
) -> None:
    bare = replace(sample("math", "7", parm=parm), format_ratio=ratio)
    assert missing_marks(bare) == marks
    whole = asked(self_contained(bare))
    assert all(mark in whole for mark in marks)


@pytest.mark.parametrize(
    ("parm", "said"),
    [
        ({"space": "relative_1000"}, "from 0 to 1000"),
        ({"det_verifier_normalized": True}, "from 0 to 1000"),
        ({"space": "pixels", "width": 640, "height": 480}, "640 wide and 480 high"),
        ({"space": "relative_1000", "reply_space": "shown_pixels"}, "in pixels of the image."),
    ],
)
def test_a_question_about_boxes_explains_the_coordinates(parm: dict[str, object], said: str) -> None:
    assert said in asked(self_contained(sample("grounding", "[]", parm=parm)))


def test_an_unknown_place_is_our_error() -> None:
    with pytest.raises(DataError, match="answer_in"):
        self_contained(sample("math", "7", parm={"answer_in": "margin"}))
