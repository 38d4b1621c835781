"""The interval of a difference over questions, for several runs together."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vtune.metrics.paired import Pair, mean_difference, paired

SCORES = st.sampled_from([0.0, 0.25, 0.5, 1.0])
PAIRS = st.lists(st.builds(Pair, st.sampled_from("abcdef"), SCORES, SCORES), min_size=1, max_size=40)


@settings(max_examples=30)
@given(PAIRS)
def test_the_mean_difference_is_that_of_the_whole_comparison(pairs: list[Pair]) -> None:
    assert mean_difference(pairs) == paired(pairs).difference


@settings(max_examples=30)
@given(PAIRS)
def test_swapping_the_models_flips_the_signs(pairs: list[Pair]) -> None:
    found, turned = (
        mean_difference(pairs),
        mean_difference([Pair(one.cluster, one.b, one.a) for one in pairs]),
    )
    assert (found.value, found.low, found.high) == pytest.approx((-turned.value, -turned.high, -turned.low))


@pytest.mark.parametrize("shared", [False, True])
def test_the_interval_covers_the_difference_in_19_of_20_cases(shared: bool) -> None:
    """Six seeds with 240 questions each, different or the same: the coverage of the intervals.

    A model gains a question in 10 of 100 draws and loses it in 12, varying by question.
    """
    random, held, tries = np.random.default_rng(0), 0, 200
    for _ in range(tries):
        questions = 240 if shared else 6 * 240
        lean = random.normal(0.0, 0.5, questions)
        gain, lose = 0.2 / (1 + np.exp(-lean)), 0.25 / (1 + np.exp(lean))
        asked = np.tile(np.arange(240), 6) if shared else np.arange(questions)
        draws = random.random(len(asked))
        less = np.where(draws < gain[asked], 1.0, np.where(draws > 1 - lose[asked], -1.0, 0.0))
        found = mean_difference(
            [Pair(str(name), float(one < 0), float(one > 0)) for name, one in zip(asked, less, strict=True)]
        )
        assert found.low is not None
        assert found.high is not None
        held += found.low <= TRUTH <= found.high
    assert 0.92 <= held / tries <= 0.985


TRUTH = float(
    np.mean(
        [
            0.2 / (1 + np.exp(-lean)) - 0.25 / (1 + np.exp(lean))
            for lean in np.random.default_rng(1).normal(0.0, 0.5, 200_000)
        ]
    )
)
