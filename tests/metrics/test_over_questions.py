"""The interval of a difference over questions, against slow sums and simulated seeds."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtune.metrics.over_questions import over_questions
from vtune.metrics.paired import Pair
from vtune.metrics.proportion import Z

SCORES = st.sampled_from([0.0, 0.25, 0.5, 1.0])
PAIRS = st.lists(st.builds(Pair, st.sampled_from("abcdef"), SCORES, SCORES), min_size=1, max_size=40)


@given(PAIRS)
def test_it_is_the_clustered_standard_error(pairs: list[Pair]) -> None:
    found = over_questions(pairs)
    mean = sum(pair.b - pair.a for pair in pairs) / len(pairs)
    of_clusters = [
        sum(pair.b - pair.a - mean for pair in pairs if pair.cluster == name)
        for name in {pair.cluster for pair in pairs}
    ]
    error = math.sqrt(sum(part**2 for part in of_clusters)) / len(pairs)
    assert found.value == pytest.approx(mean)
    assert (found.low, found.high) == pytest.approx((mean - Z * error, mean + Z * error), abs=1e-9)


@given(PAIRS)
def test_turned_round_it_is_the_same_with_other_signs(pairs: list[Pair]) -> None:
    found, turned = over_questions(pairs), over_questions([Pair(one.cluster, one.b, one.a) for one in pairs])
    assert (found.value, found.low, found.high) == pytest.approx((-turned.value, -turned.high, -turned.low))


@pytest.mark.parametrize("shared", [False, True])
def test_19_of_20_intervals_hold_the_difference(shared: bool) -> None:
    """Six seeds with 240 questions, of their own or the same: the share of intervals that hold the truth.

    A model gains a question in 10 of 100 draws and loses it in 12, more or less by the question.
    """
    random, held, tries = np.random.default_rng(0), 0, 400
    for _ in range(tries):
        questions = 240 if shared else 6 * 240
        lean = random.normal(0.0, 0.5, questions)
        gain, lose = 0.2 / (1 + np.exp(-lean)), 0.25 / (1 + np.exp(lean))
        asked = np.tile(np.arange(240), 6) if shared else np.arange(questions)
        draws = random.random(len(asked))
        less = np.where(draws < gain[asked], 1.0, np.where(draws > 1 - lose[asked], -1.0, 0.0))
        pairs = [
            Pair(str(name), float(one < 0), float(one > 0)) for name, one in zip(asked, less, strict=True)
        ]
        found = over_questions(pairs)
        assert found.low is not None
        assert found.high is not None
        held += found.low <= TRUTH <= found.high
    assert 0.925 <= held / tries <= 0.975


TRUTH = float(
    np.mean(
        [
            0.2 / (1 + np.exp(-lean)) - 0.25 / (1 + np.exp(lean))
            for lean in np.random.default_rng(1).normal(0.0, 0.5, 200_000)
        ]
    )
)
