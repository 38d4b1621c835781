import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.advantage.brute import query_similarity
from vtune.advantage.tool_types import tool_types
from vtune.tools.similarity import STOP_WORDS, Look, Pairs, overlap, wording

words = st.sampled_from(["legoland", "windsor", "opening", "year", "the", "of", "park", "parks", "who", "is"])
queries = st.lists(words, min_size=1, max_size=5).map(" ".join)
anything = st.text(min_size=1, max_size=12).filter(lambda text: bool(text.strip()))


def alike(one: str, other: str) -> float:
    zeros = np.zeros(2, dtype=np.int64)
    return float(wording([one, other], Pairs(np.array([0]), np.array([1]), zeros))[0])


def test_the_papers_formula_matches_a_hand_calculation() -> None:
    # Words legoland, windsor, opening, year against legoland, windsor; 22 neighbouring pairs are in both.
    one, other = "Legoland Windsor opening year", "the Legoland Windsor"
    grams = [{q[k : k + 2] for k in range(len(q) - 1)} for q in (one.lower(), other.lower())]
    shared = len(grams[0] & grams[1]) / len(grams[0] | grams[1])
    assert alike(one, other) == pytest.approx(0.3 * 2 / 4 + 0.5 * 1 + 0.2 * shared)


@settings(max_examples=50)
@given(st.lists(queries, min_size=2, max_size=6), st.lists(st.integers(0, 2), min_size=6, max_size=6))
def test_many_pairs_at_once_match_single_pairs(asked: list[str], question: list[int]) -> None:
    numbers = np.array(question[: len(asked)])
    left, right = (side.ravel() for side in np.indices((len(asked), len(asked))))
    same = numbers[left] == numbers[right]
    found = wording(asked, Pairs(left[same], right[same], numbers))
    expected = [query_similarity(asked[i], asked[k]) for i, k in zip(left[same], right[same], strict=True)]
    assert found.tolist() == pytest.approx(expected, abs=1e-12)


@settings(max_examples=40)
@given(anything, anything)
def test_similarity_is_symmetric_in_range_and_1_for_the_same_words(one: str, other: str) -> None:
    assert alike(one, one) == pytest.approx(1)
    assert alike(one, other) == pytest.approx(alike(other, one))
    assert 0 <= alike(one, other) <= 1 + 1e-12


def test_case_spaces_and_character_forms_do_not_matter() -> None:
    assert alike("Windsor  Park", "windsor park") == pytest.approx(1)
    assert alike("ｗｉｎｄｓｏｒ park", "windsor park") == pytest.approx(1)


def test_vowel_signs_belong_to_their_words() -> None:
    banana, fort = "केला का रंग", "किला का रंग"
    grams = [{q[k : k + 2] for k in range(len(q) - 1)} for q in (banana, fort)]
    shared = len(grams[0] & grams[1]) / len(grams[0] | grams[1])
    assert alike(banana, fort) == pytest.approx(0.3 * 2 / 4 + 0.5 * 2 / 3 + 0.2 * shared)


def test_stop_words_count_only_if_there_is_nothing_else() -> None:
    assert len(STOP_WORDS) > 100
    assert STOP_WORDS.isdisjoint({"windsor", "year", "first", "new"})
    assert alike("who is he", "who is he") == pytest.approx(1)
    assert alike("who is he", "what was it") < 0.1
    # All words agree, and 5 of 7 neighbouring pairs.
    assert 0.8 < alike("the park", "a park") < 1
    assert alike("?!", "!?") == 0
    assert alike("x", "x") == pytest.approx(1)
    assert alike("x", "y") == 0


def test_box_overlap_matches_the_areas() -> None:
    looks: list[Look] = [
        ((0, (0.0, 0.0, 10.0, 10.0)),),
        ((0, (5.0, 0.0, 15.0, 10.0)),),
        ((1, (0.0, 0.0, 10.0, 10.0)),),
    ]
    pairs = Pairs(np.array([0, 0, 0]), np.array([0, 1, 2]), np.zeros(3, dtype=np.int64))
    assert overlap(looks, pairs).tolist() == pytest.approx([1, 1 / 3, 0])
    nothing: list[Look] = [((0, (5.0, 5.0, 5.0, 5.0)),), ((0, (9.0, 9.0, 0.0, 0.0)),)]
    assert overlap(nothing, Pairs(np.array([0]), np.array([1]), np.zeros(2, dtype=np.int64))).tolist() == [0]


def test_no_tool_has_two_types() -> None:
    tools = [tool for kind in tool_types().values() for tool in kind.tools]
    assert len(tools) == len(set(tools)) > 3
