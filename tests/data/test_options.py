from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtune.data.options import bare, listing, multiple_choice, presented
from vtune.errors import DataError
from vtune.schema.message import Message, Picture
from vtune.schema.sample import Evidence, Sample

TEMPLATE = (
    "Question: {question}\nOptions:\n{options}\nPlease select the correct answer from the options above."
)
COLOURS = ("red", "green", "blue", "yellow")


def sample(question: str = "Which?", choices: tuple[str, ...] = COLOURS, number: int = 0) -> Sample:
    return Sample(
        id=f"quiz/{number}",
        source="quiz",
        prompt=multiple_choice(question, choices),
        images=(Picture(data=b"x"),),
        ground_truth="A",
        verifier="choice",
        choices=choices,
    )


def test_a_template_holds_question_and_options_exactly_once() -> None:
    found = presented(sample("Is {options} a word?"), template=TEMPLATE, shuffle=None, parm={"reading": "x"})
    assert found.prompt[0].content == (
        "<image>\nQuestion: Is {options} a word?\nOptions:\nA. red\nB. green\nC. blue\nD. yellow\n"
        "Please select the correct answer from the options above."
    )
    assert found.verifier_parm == {"reading": "x"}


@pytest.mark.parametrize(
    "suffix",
    [
        "\nAnswer with the option's letter from the given choices directly.",
        " Answer the option letter directly.",
        "\nPlease select the correct answer from the options above. \n",
    ],
)
def test_an_instruction_in_the_file_is_not_repeated(suffix: str) -> None:
    assert bare(f"Which?{suffix}") == "Which?"
    found = presented(sample(f"Which?{suffix}"), template=TEMPLATE, shuffle=None)
    assert found.prompt == presented(sample(), template=TEMPLATE, shuffle=None).prompt
    assert bare("Which sign says: answer the option letter directly, please?").endswith("please?")


@given(st.lists(st.text("abc", min_size=1), min_size=2, max_size=6, unique=True), st.integers(0, 99))
def test_the_right_option_stays_right_after_shuffling(choices: list[str], seed: int) -> None:
    before = sample(choices=tuple(choices))
    found = presented(before, template=TEMPLATE, shuffle=seed)
    assert sorted(found.choices) == sorted(choices)
    assert found.choices["ABCDEF".index(found.ground_truth)] == choices[0]
    assert listing(found.choices) in found.prompt[0].content
    assert found == presented(before, template=TEMPLATE, shuffle=seed)


def test_a_letter_means_a_place_rather_than_another_options_text() -> None:
    signs = sample(choices=("C", "A", "B", "D"))
    assert presented(signs, template=TEMPLATE, shuffle=None).ground_truth == "A"
    moved = presented(signs, template=TEMPLATE, shuffle=1)
    assert moved.choices["ABCD".index(moved.ground_truth)] == "C"


def in_pictures(template: str, shuffle: int | None) -> Sample:
    """A question with a picture before it, one in it, and one in each option; the first option is right."""
    choices = ("<image>", "as <image>", "<image>")
    before = Sample(
        id="quiz/0",
        source="quiz",
        prompt=(Message("user", f"<image>\nWhich is like <image>?\n{listing(choices)}", (0, 1, 2, 3, 4)),),
        images=tuple(Picture(data=bytes([number])) for number in range(5)),
        ground_truth="A",
        verifier="choice",
        choices=choices,
        evidence=(Evidence("right", 2, (0, 0, 1, 1)),),
    )
    return presented(before, template=template, shuffle=shuffle)


def pictures_of(found: Sample) -> list[int]:
    """The picture of each mark, by its published number."""
    return [(found.images[place].data or b"")[0] for place in found.prompt[0].images]


@pytest.mark.parametrize("seed", range(6))
def test_the_pictures_of_options_move_with_them(seed: int) -> None:
    found = in_pictures(TEMPLATE, seed)
    assert found.prompt[0].images == (0, 1, 2, 3, 4)
    before, inside, *listed = pictures_of(found)
    assert (before, inside) == (0, 1)
    assert listed["ABC".index(found.ground_truth)] == 2
    assert listed[found.choices.index("as <image>")] == 3
    assert pictures_of(found)[found.evidence[0].image] == 2


def test_pictures_move_with_options_that_stand_before_the_question() -> None:
    assert pictures_of(in_pictures(TEMPLATE, None)) == [0, 1, 2, 3, 4]
    assert pictures_of(in_pictures("{options}\n{question}", None)) == [0, 2, 3, 4, 1]


def orders(seed: int) -> list[Sample]:
    return [presented(sample(number=number), template=TEMPLATE, shuffle=seed) for number in range(400)]


def test_every_letter_is_right_about_equally_often() -> None:
    letters = Counter(found.ground_truth for found in orders(0))
    assert set(letters) == set("ABCD")
    assert min(letters.values()) > 70
    assert orders(0) == orders(0) != orders(1)


def test_an_unusable_template_or_row_is_refused() -> None:
    with pytest.raises(DataError, match="does not end with its options"):
        presented(replace(sample(), choices=("x", "y")), template=TEMPLATE, shuffle=None)
    with pytest.raises(DataError, match="is not one of red"):
        presented(replace(sample(), ground_truth="E"), template=TEMPLATE, shuffle=None)
    free = replace(sample(), choices=())
    assert presented(free, template=TEMPLATE, shuffle=3) == free


@pytest.mark.parametrize(
    "last",
    [
        "All of the above",
        "none of the above.",
        "Both A and B",
        "neither (A) nor (C)",
        "A & C",
        "A, B",
        "all above",
    ],
)
def test_options_that_refer_to_others_are_not_shuffled(last: str) -> None:
    before = sample(choices=(*COLOURS[:3], last))
    assert {presented(before, template=TEMPLATE, shuffle=seed).choices for seed in range(20)} == {
        before.choices
    }


@pytest.mark.parametrize("last", ["above the table", "Plan A", "it's A, as in Q and A", "none", "X and Y"])
def test_options_about_something_else_are_shuffled(last: str) -> None:
    before = sample(choices=(*COLOURS[:3], last))
    found = {presented(before, template=TEMPLATE, shuffle=seed).choices for seed in range(20)}
    assert len(found) > 1
