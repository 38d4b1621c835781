"""Which verifiers reward a reply that lists all answers."""

import json
from typing import Any

import pytest

from vtune.schema.message import Message
from vtune.schema.sample import Sample
from vtune.verifiers.listing import GROUPS, Lists


def source(verifier: str, *truths: str, **parm: Any) -> list[Sample]:
    return [
        Sample(
            id=f"quiz/{number}",
            source="quiz",
            prompt=(Message("user", "How many?"),),
            verifier=verifier,
            ground_truth=truth,
            verifier_parm=parm,
        )
        for number, truth in enumerate(truths)
    ]


def paid(*samples: Sample) -> list[tuple[str, str]]:
    seen = Lists()
    for sample in samples:
        seen.see(sample)
    return seen.paid()


NUMBERS = ("3", "7", "12", "5")
TEXTS = ('["north"]', '["east"]', '["south"]', '["west"]')
WORDS = ("north", "east", "south", "west")


@pytest.mark.parametrize(
    ("samples", "pays"),
    [
        (source("counting", *NUMBERS, match="substring"), True),
        (source("counting", *NUMBERS, match="equal"), False),
        (source("counting", *NUMBERS), False),
        (source("reading", *TEXTS, metric="contains"), True),
        (source("exact", *WORDS), False),
        (source("math", *NUMBERS), False),
        (source("judge", *WORDS), False),
        (source("counting", "3", "3", "7", match="substring"), False),
        ([], False),
    ],
    ids=["substring", "equal", "math", "reading", "exact", "expressions", "a model", "too few", "none"],
)
def test_a_verifier_that_finds_the_truth_anywhere_rewards_lists(samples: list[Sample], pays: bool) -> None:
    assert bool(paid(*samples)) is pays


def test_a_source_sorted_by_answer_is_checked_with_all_of_them() -> None:
    rows = source("counting", *["1"] * 100, *NUMBERS, match="substring")
    assert paid(*rows) == [("quiz", "counting")]


def test_rows_with_other_options_hide_no_finding() -> None:
    assert paid(
        *source("counting", "9", match="equal"), *source("counting", *NUMBERS, match="substring")
    ) == [("quiz", "counting")]
    metrics = source("reading", *TEXTS, metric="contains"), source("reading", '["a"]', metric="teds")
    assert paid(*metrics[1], *metrics[0]) == [("quiz", "reading")]
    assert paid(*source("counting", *NUMBERS), *source("counting", *NUMBERS, match="equal")) == []


def test_an_empty_list_that_is_right_for_all_questions_is_found() -> None:
    """MEGA-Bench's set_precision: an empty list names nothing wrong."""
    truths = [json.dumps({"answer": f"[{number}, {number + 1}]"}) for number in range(4)]
    for metric, pays in (("set_precision", True), ("set_equality", False), ("jaccard_index", False)):
        rows = source("mega_bench", *truths, metrics={"answer": metric})
        assert bool(paid(*rows)) is pays


def test_a_source_is_named_once_however_many_options_reward_lists() -> None:
    rows = [*source("reading", *TEXTS), *source("reading", *TEXTS, metric="contains_cased")]
    assert paid(*rows) == [("quiz", "reading")]


@pytest.mark.parametrize("verifier", ["math", "ocr"])
def test_spelling_variants_of_one_answer_are_not_a_list(verifier: str) -> None:
    assert paid(*source(verifier, "0.5", "1/2", r"\frac{1}{2}")) == []


def test_numbers_contained_in_others_are_different_answers() -> None:
    assert paid(*source("counting", "1", "12", "123", match="substring")) == [("quiz", "counting")]


def test_row_specific_options_do_not_split_groups() -> None:
    rows = [
        one
        for number, text in enumerate(WORDS)
        for one in source("reading", f'["{text}"]', metric="contains", bbox=[number, 2, 3, 4])
    ]
    assert paid(*rows) == [("quiz", "reading")]


def test_the_number_of_groups_checked_per_source_is_limited() -> None:
    """Otherwise memory would grow with the rows of a verifier whose options differ in each row."""
    others = [one for number in range(GROUPS) for one in source("mine", "north", option=str(number))]
    listed = source("counting", *NUMBERS, match="substring")
    assert paid(*others[1:], *listed) == [("quiz", "counting")]
    assert paid(*others, *listed) == []
