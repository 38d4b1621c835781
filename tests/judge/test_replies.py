"""Reading verdicts from the text that judges write around them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtune.judge.replies import read_level, read_same, read_target


def test_unfinished_thoughts_give_no_verdict() -> None:
    cut = "<think>The crop may show it. Score: {}"
    assert read_level(cut.format("0.5")) is None
    assert read_target(cut.format("1")) is None
    assert read_same(cut.format("TRUE")) is None
    assert read_same("<think>So?</think>FALSE") is False


@pytest.mark.parametrize(
    ("reply", "same"),
    [
        ("TRUE? I weigh it.\n</think>\n\nFALSE", False),
        (" <think>TRUE?</think><think>Or so.</think>\nFALSE", False),
        ('FALSE: the answer "Trier <think>" is another.', False),
        ('FALSE: "Trier <think>x</think>" is another.', False),
        ('<think>TRUE?</think>FALSE. The answer is "Trier </think>TRUE".', None),
        ('<think>It says "Trier </think>TRUE".</think>FALSE', None),
        ("Sure.\n<think>maybe TRUE</think>\nFALSE", False),
        ("Sure. <think>maybe TRUE</think> <think>No.</think> FALSE", False),
        ("\ufeff<think>maybe TRUE</think>FALSE", False),
        ("\ufeff\n maybe TRUE</think>FALSE", False),
        ('A 5" pipe? TRUE?\nSo no.</think>FALSE', False),
        ("True or false? Perhaps TRUE.</think>FALSE", False),
        ("Sure.\n<think>TRUE", None),
        ("<think>Sure.</think>\n<think>TRUE", None),
        ("Hm.</think>Sure. <think>maybe TRUE</think> FALSE", False),
        ('FALSE. The answer is "Trier </think>TRUE".', None),
        ('The verdict is FALSE. The answer is "Trier </think>TRUE".', None),
        ("The verdict is FALSE. The answer is \u201cTrier </think>TRUE\u201d.", None),
        ("Verdict: **FALSE**\nIt says Trier, TRUE\n</think>\nTRUE", None),
        ("FALSE. The answer is Trier </think>TRUE.", None),
        ('It says "</think>TRUE <think>". FALSE. So "</think>TRUE <think>" is wrong.', None),
        ('It says "TRUE <think>". FALSE.', None),
    ],
)
def test_thoughts_are_not_verdicts_and_quotations_are_not_thoughts(reply: str, same: bool | None) -> None:
    """Some servers strip the opening tag; some judges quote answers including their tags."""
    assert read_same(reply) is same


@pytest.mark.parametrize(
    "reply",
    [
        '0. The answer is "Trier </think>1".',
        "0.25: it says Trier </think>1",
    ],
)
def test_a_numeric_verdict_is_not_reversed_by_a_quotation(reply: str) -> None:
    assert read_target(reply) in (None, False)
    assert read_level(reply) in (None, "miss")


@given(st.text() | st.text("01.25 :/-\nTRUEFALSEscore", max_size=60))
def test_no_judge_reply_raises(reply: str) -> None:
    assert read_level(reply) in (None, "full", "partial", "miss")
    assert read_target(reply) in (None, True, False)
    assert read_same(reply) in (None, True, False)


@pytest.mark.parametrize(
    ("reply", "level"),
    [
        ("1", "full"),
        ("1.0", "full"),
        ("0.5.", "partial"),
        (".5", "partial"),
        ("**0.50**", "partial"),
        ("Score = 0.25", "miss"),
        ("0.25: does not match", "miss"),
        ("0.25 - the images do not show the mailbox", "miss"),
        ("1: The slippers are clearly visible.", "full"),
        ("1 (the mug is in the middle)", "full"),
        ("Score: 1\nThe image clearly shows 1 mug and 2 plates.", "full"),
        ("The crop shows half of the sign, so I would give it a 0.5.", "partial"),
        ("I give this 1.", "full"),
        ("The score is **0.5** because only 1 of the 2 cups is visible.", "partial"),
        ('{"score": 1, "reason": "clearly visible"}', "full"),
        ("\\boxed{0.25}", "miss"),
        ("<score>1</score>", "full"),
        ("0.5/1", "partial"),
        ("Score: 0.5 and the crop shows part of it.", "partial"),
        ("Score: 1 and nothing is cut off.", "full"),
        ("Answer: 0.5 to be fair", "partial"),
        ("1 out of 1", "full"),
        ("Image 1: shows the kite.\nImage 2: shows the sky.\nScore: 1", "full"),
        ("The score should be 1, as the roof of the bus is visible.", "full"),
        ("Score \u2013 0.25", "miss"),
        ("It does not show the sign, so I give it a 0.25.", "miss"),
        ("The mug is not in the picture so 0.25", "miss"),
        ("The sign is not cut off. Score: 1", "full"),
        ("Score \u2013 1", "full"),
        ("Score \u2192 1", "full"),
        ("score\uff1a1", "full"),
        ("1 = clear match", "full"),
        ("I'd say 1", "full"),
        ("I score this 1", "full"),
        ("<think>Score = 1 if it is there, 0.5 if partly.</think>0.25", "miss"),
    ],
)
def test_a_level_is_read_from_surrounding_text(reply: str, level: str) -> None:
    assert read_level(reply) == level


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "It is clearly visible.",
        "0.75",
        "0",
        "2",
        "50%",
        "1 or 0.5",
        "0.5 or lower",
        "0.25-0.5",
        "0.25 to 0.5",
        "0.5 and 1",
        "1 and a half of the signs",
        "0.25, since there is no target; a 1 would need it",
        "1.0. The image is 0.5 of the sign",
        "between 0.5 and 1",
        "Score: 0.5, though it could be 1.",
        "Score: 1. No, 0.5.",
        "not 1",
        "0.25, not 1",
        "1 if the sign is visible",
        "Score = 1 if Agent Generated Images clearly contains at least one object. Score = 0.5",
        "1, 0.5 or 0.25",
        "1 person is visible, but no mailbox",
        "Image 1 shows the street.",
        "Image 1: the street.",
        "Image 1: 0.5\nImage 2: 1",
        "Score 1 = full match; 0.5 = partial",
        "It would not score 1. Score: 0.5",
        "At (0.31, 0.5) there is a cup.",
        "Score: 1/2",
        "I would not give it a 1.",
        "The crop does not deserve a 1.",
        "This isn't a 0.5.",
        "I can\u2019t say 1",
    ],
)
def test_a_reply_with_several_levels_or_none_is_unreadable(reply: str) -> None:
    assert read_level(reply) is None


@pytest.mark.parametrize(
    ("reply", "label"),
    [
        ("1", True),
        ("0.", False),
        ("`1`", True),
        ("1: the cup stands on the table", True),
        ("Answer: 0. There is 1 dog, and no cup.", False),
        ("1 or 0", None),
        ("1 dog", None),
        ("yes", None),
        ("", None),
        ("0.5", None),
    ],
)
def test_a_label_is_a_single_digit_given_as_a_verdict(reply: str, label: bool | None) -> None:
    assert read_target(reply) is label


@pytest.mark.parametrize(
    ("reply", "same"),
    [
        ("TRUE", True),
        (" false.", False),
        ("**True**", True),
        ("FALSE: the student says red, the reference blue.", False),
        ("Both are the number 4.\nTRUE", True),
        ("The answer is TRUE.", True),
        ("TRUE or FALSE", None),
        ("TRUE. No: FALSE.", None),
        ("It is true that both are fruits.", None),
        ("I would not say TRUE.", None),
        ("I cannot answer TRUE: the units differ.", None),
        ("They do not differ, so the answer is TRUE.", True),
        ("The two are not the same: FALSE", False),
        ("The two are not the same\nFALSE", False),
        ("1", None),
        ("", None),
        ("yes", None),
    ],
)
def test_a_comparison_is_a_single_word_given_as_a_verdict(reply: str, same: bool | None) -> None:
    assert read_same(reply) is same
