"""What so many questions can show, held against the power of the test that is used."""

import numpy as np
import pytest
from scipy.stats import binom

from vtune.metrics.paired import Pair, paired
from vtune.metrics.power import DISCORDANT, at_best, detectable, power, power_of, shown_by_seeds
from vtune.metrics.seeds import over_seeds


def exact_power(questions: int, discordant: float, difference: float) -> float:
    """How often McNemar's exact test at 5 % finds a difference."""
    up = (discordant + difference) / 2 / discordant
    found = 0.0
    for count in range(6, questions + 1):
        # The largest number of changes for the worse that is still significant.
        fewest = np.flatnonzero(2 * binom.cdf(np.arange(count // 2), count, 0.5) <= 0.05)
        if len(fewest):
            worst = fewest.max()
            either = binom.cdf(worst, count, up) + binom.sf(count - worst - 1, count, up)
            found += binom.pmf(count, questions, discordant) * either
    return found


@pytest.mark.parametrize("questions", [50, 191, 400])
@pytest.mark.parametrize("discordant", [0.1, 0.2, 0.4])
def test_a_difference_of_that_size_is_found_in_80_to_95_of_100_cases(
    questions: int, discordant: float
) -> None:
    least = detectable(questions, (discordant / questions) ** 0.5)
    # More cannot differ in one direction than differ at all.
    assert 0.8 <= exact_power(questions, max(discordant, least), least) <= 0.96


@pytest.mark.parametrize("questions", [50, 191, 400])
def test_less_than_what_is_shown_at_best_is_not_found(questions: int) -> None:
    least = at_best(questions)
    assert exact_power(questions, least, least) >= 0.8
    for discordant in (0.6 * least, 0.8 * least, least, 2 * least):
        assert exact_power(questions, discordant, 0.6 * least) < 0.6


def test_vstar_shows_nothing_under_five_points() -> None:
    found = power(191, 0.9)
    assert found["paired_at_best"] == pytest.approx(0.051, abs=5e-4)
    assert found["paired"] == pytest.approx(0.0693, abs=5e-4)
    assert found["unpaired"] == pytest.approx(0.0889, abs=5e-4)


def test_several_rollouts_show_less_than_one_does() -> None:
    """What is shown at best is never more than what `paired` can show of the same answers."""
    pairs = [Pair(str(n), 0.5, 1.0 if n < 10 else 0.5) for n in range(60)]
    found = power(60, 0.7, answers=120)
    assert found["paired_at_best"] == pytest.approx(at_best(120)) == pytest.approx(0.0812, abs=5e-4)
    assert found["paired_at_best"] <= paired(pairs).detectable < power(60, 0.7)["paired_at_best"]
    assert paired(pairs).p < 0.05
    assert (found["clusters"], found["answers"], power(60, 0.7)["answers"]) == (60, 120, 60)


def test_a_score_of_0_and_few_questions_promise_nothing() -> None:
    assert power(92, 0.0)["unpaired"] > 0.05
    assert (power(3, 0.5)["paired"], power(3, 0.5)["unpaired"]) == (None, 1.0)


def test_no_difference_is_larger_than_the_share_of_the_answers_that_differ() -> None:
    shown = [power(questions, 0.5)["paired"] for questions in range(1, 400)]
    assert all(one is None or one <= DISCORDANT for one in shown)
    enough = [one is not None for one in shown]
    assert enough == sorted(enough)
    assert (enough[0], enough[-1]) == (False, True)


@pytest.mark.parametrize("seeds", [2, 3, 5, 10])
def test_seeds_find_what_they_are_said_to_in_80_of_100_sweeps(seeds: int) -> None:
    rng = np.random.default_rng(seeds)
    drawn = rng.normal(shown_by_seeds(seeds), 1.0, size=(2000, seeds))
    found = [over_seeds([float(value) for value in one]) for one in drawn]
    beyond = np.mean([not (one.low <= 0 <= one.high) for one in found])  # type: ignore[operator, union-attr]
    assert beyond == pytest.approx(0.8, abs=0.03)


def test_the_power_of_seeds_is_in_units_of_their_spread() -> None:
    found = power_of({"accuracy": 0.04, "faithful": 0.08}, 3)
    assert found["faithful"]["shown"] == pytest.approx(2 * found["accuracy"]["shown"])
    # t of two degrees of freedom is 4.303; 4.303 * 0.04 / sqrt(3).
    assert found["accuracy"]["reach"] == pytest.approx(0.09937, abs=1e-5)
    assert found["accuracy"]["shown"] > found["accuracy"]["reach"]
    assert power_of({"accuracy": 0.04}, 1)["accuracy"] == {"spread": 0.04, "reach": None, "shown": None}
    assert shown_by_seeds(10) < shown_by_seeds(3) < shown_by_seeds(2)
