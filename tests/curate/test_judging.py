import pytest

from tests.curate.build import sample
from vtune.curate.judging import (
    Review,
    knowledge_prompt,
    label_prompt,
    queue_row,
    read_knowledge,
    read_label,
    read_review,
)
from vtune.errors import DataError


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        ("VISUAL", False),
        (" external.\n", True),
        ("**EXTERNAL**", True),
        ("<think>\n\n</think>\n\nVISUAL", False),
        ("Is it EXTERNAL? No, a count.</think>VISUAL", False),
    ],
)
def test_a_one_word_opinion_is_read(reply: str, says: bool) -> None:
    assert read_knowledge(reply) is says


@pytest.mark.parametrize("reply", ["", "VISUAL or EXTERNAL", "I think VISUAL", "RIGHT", "<think>VISUAL"])
def test_anything_else_is_not_an_opinion(reply: str) -> None:
    assert read_knowledge(reply) is None


def test_labels_are_right_wrong_or_unsure() -> None:
    assert [read_label(word) for word in ("Right", "WRONG.", "unsure", "maybe")] == [
        "right",
        "wrong",
        "unsure",
        None,
    ]


def test_a_judge_sees_options_once_and_the_label_with_its_text() -> None:
    row = sample("Which?", "B", choices=("cat", "dog"), answer="dog", verifier="choice")
    assert label_prompt(row).text == "Question: Which?\nA. cat\nB. dog\nRecorded answer: B (dog)\n\nPictures:"
    listed = sample("Which?\nA. cat\nB. dog", "B", choices=("cat", "dog"), verifier="choice")
    assert knowledge_prompt(listed).text == "Question: Which?\nA. cat\nB. dog\n\nPictures:"


def test_a_decision_is_read_back_from_its_line() -> None:
    row = queue_row("ab", sample(), "s", "wrong")
    assert read_review(row, "q:1") is None
    assert read_review(row | {"decision": "keep"}, "q:1") == ("ab", Review("keep"))
    assert read_review(row | {"decision": "fix", "corrected": "5"}, "q:1") == ("ab", Review("fix", "5"))


@pytest.mark.parametrize(
    "change",
    [{"decision": "yes"}, {"decision": "fix"}, {"decision": "keep", "corrected": "5"}, {"corrected": "5"}],
)
def test_an_incomplete_decision_is_refused_with_its_line(change: dict[str, str]) -> None:
    with pytest.raises(DataError) as caught:
        read_review(queue_row("ab", sample(), "s", "wrong") | change, "q.jsonl:3")
    assert caught.value.where == "q.jsonl:3"
