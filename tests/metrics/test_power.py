"""What a number of questions can show, compared with the power of the test that is used."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binom

from vtune.metrics.paired import Pair, Paired, paired
from vtune.metrics.power import DISCORDANT, at_best, detectable, found, power, power_of, shown_by_seeds
from vtune.metrics.seeds import over_seeds


def exact_power(questions: int, discordant: float, difference: float) -> float:
    """The power of McNemar's exact test at 5 %."""
    up = (discordant + difference) / 2 / discordant
    found = 0.0
    for count in range(6, questions + 1):
        # The largest number of changes for the worse at which the test is still significant.
        fewest = np.flatnonzero(2 * binom.cdf(np.arange(count // 2), count, 0.5) <= 0.05)
        if len(fewest):
            worst = fewest.max()
            either = binom.cdf(worst, count, up) + binom.sf(count - worst - 1, count, up)
            found += binom.pmf(count, questions, discordant) * either
    return found


@pytest.mark.parametrize("questions", [6, 10, 20, 50, 191, 400])
@pytest.mark.parametrize("discordant", [0.1, 0.2, 0.4])
def test_a_difference_of_the_stated_size_is_found_in_80_percent(questions: int, discordant: float) -> None:
    least = detectable(questions, discordant)
    assert least is not None
    # No more can differ in one direction than in total.
    share = max(discordant, least)
    assert exact_power(questions, share, least) == pytest.approx(0.8, abs=1e-6)
    assert found(questions, share, least) == pytest.approx(0.8, abs=1e-6)


@pytest.mark.parametrize("questions", [10, 50, 191, 400])
def test_a_difference_below_the_best_case_is_not_found(questions: int) -> None:
    least = at_best(questions)
    assert least is not None
    assert exact_power(questions, least, least) >= 0.8 - 1e-9
    for discordant in (0.6 * least, 0.8 * least, least, 2 * least):
        assert exact_power(questions, min(1.0, discordant), 0.6 * least) < 0.6


@pytest.mark.parametrize(
    ("questions", "points"), [(6, 96.3), (10, 67.3), (20, 36.6), (60, 12.9), (191, 4.1), (1000, 0.8)]
)
def test_in_the_best_case_six_differ_in_80_percent(questions: int, points: float) -> None:
    least = at_best(questions)
    assert least is not None
    assert 100 * least == pytest.approx(points, abs=0.05)
    assert binom.sf(5, questions, least) == pytest.approx(0.8)


@pytest.mark.parametrize("clusters", range(1, 8))
def test_nothing_is_promised_if_no_result_could_be_significant(clusters: int) -> None:
    """The smallest p-value of this many clusters is reached if all differ in one direction."""
    extreme = paired([Pair(str(n), 0.0, 1.0) for n in range(clusters)])
    shared = paired([Pair(str(n), 0.0, 1.0) for n in range(clusters) for _ in range(6)])
    assert (shared.test, shared.p) == ("sign flips of clusters", pytest.approx(extreme.p))
    known = [extreme.detectable, shared.detectable, power(clusters, 0.5, answers=30)["paired_at_best"]]
    assert [one is not None for one in known] == [extreme.p < 0.05] * 3


def test_clusters_that_change_by_different_amounts_are_found_in_80_percent() -> None:
    """Pictures with one to eight questions each, a third of which change; the test is that of comparisons."""
    draw = np.random.default_rng(0)
    sizes = np.repeat([1, 2, 4, 8], 15)
    changed = np.where(np.arange(60) % 3 == 0, sizes, 0)

    def compared(signs: NDArray[np.int_]) -> Paired:
        return paired(
            [
                Pair(str(number), float(change * sign < 0), float(change * sign > 0))
                for number, (size, change, sign) in enumerate(zip(sizes, changed, signs, strict=True))
                for _ in range(size)
            ]
        )

    least = compared(np.where(np.arange(60) % 2, 1, -1)).detectable
    assert least is not None
    up = (1 + least * sizes.sum() / changed.sum()) / 2
    drawn = [np.where(draw.random(60) < up, 1, -1) for _ in range(150)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vtune.metrics.paired.FLIPS", 2000)
        p = [compared(signs).p for signs in drawn]
    assert np.mean([one < 0.05 for one in p]) == pytest.approx(0.8, abs=0.08)


def test_vstar_cannot_show_less_than_four_points() -> None:
    found = power(191, 0.9)
    assert found["paired_at_best"] == pytest.approx(0.0411, abs=5e-5)
    assert found["paired"] == pytest.approx(0.0654, abs=5e-5)
    assert found["unpaired"] == pytest.approx(0.0889, abs=5e-5)


def test_several_rollouts_detect_smaller_differences_than_one() -> None:
    """The detectable difference at best is never larger than `paired` can show for the same answers."""
    pairs = [Pair(str(n), 0.5, 1.0 if n < 10 else 0.5) for n in range(60)]
    found = power(60, 0.7, answers=120)
    assert found["paired_at_best"] == pytest.approx(at_best(60, step=0.5)) == pytest.approx(0.0643, abs=5e-5)
    shown = paired(pairs).detectable
    assert shown is not None
    assert found["paired_at_best"] <= shown < power(60, 0.7)["paired_at_best"]
    assert paired(pairs).p < 0.05
    assert (found["clusters"], found["answers"], power(60, 0.7)["answers"]) == (60, 120, 60)


def test_a_score_of_0_or_few_questions_promise_nothing() -> None:
    assert power(92, 0.0)["unpaired"] > 0.05
    assert (power(3, 0.5)["paired"], power(3, 0.5)["unpaired"]) == (None, 1.0)


def test_a_difference_is_at_most_the_share_of_differing_answers() -> None:
    shown = [power(questions, 0.5)["paired"] for questions in range(1, 400)]
    assert all(one is None or one <= DISCORDANT for one in shown)
    enough = [one is not None for one in shown]
    assert enough == sorted(enough)
    assert (enough[0], enough[-1]) == (False, True)


@pytest.mark.parametrize("seeds", [2, 3, 5, 10])
def test_seeds_find_the_stated_difference_in_80_percent_of_sweeps(seeds: int) -> None:
    rng = np.random.default_rng(seeds)
    drawn = rng.normal(shown_by_seeds(seeds), 1.0, size=(2000, seeds))
    found = [over_seeds([float(value) for value in one]) for one in drawn]
    beyond = np.mean([not (one.low <= 0 <= one.high) for one in found])  # type: ignore[operator, union-attr]
    assert beyond == pytest.approx(0.8, abs=0.03)


def test_the_power_of_seeds_scales_with_their_spread() -> None:
    found = power_of({"accuracy": 0.04, "faithful": 0.08}, 3)
    assert found["faithful"]["shown"] == pytest.approx(2 * found["accuracy"]["shown"])
    # t with two degrees of freedom is 4.303; 4.303 * 0.04 / sqrt(3).
    assert found["accuracy"]["reach"] == pytest.approx(0.09937, abs=1e-5)
    assert found["accuracy"]["shown"] > found["accuracy"]["reach"]
    assert power_of({"accuracy": 0.04}, 1)["accuracy"] == {"spread": 0.04, "reach": None, "shown": None}
    assert shown_by_seeds(10) < shown_by_seeds(3) < shown_by_seeds(2)
