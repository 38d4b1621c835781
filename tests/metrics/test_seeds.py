from statistics import fmean

import numpy as np
import pytest

from vtune.metrics.seeds import over_seeds, t_factor

# The 97.5 % quantiles of Student's t, as in published tables.
TABLE = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 8: 2.306, 9: 2.262, 30: 2.042, 120: 1.980}


@pytest.mark.parametrize(("freedom", "factor"), TABLE.items())
def test_the_t_factor_matches_published_tables(freedom: int, factor: float) -> None:
    assert t_factor(freedom) == pytest.approx(factor, abs=5e-4)


def test_the_interval_is_the_mean_plus_or_minus_t_standard_errors() -> None:
    found = over_seeds([0.5, 0.6, 0.7])
    assert found is not None
    reach = 4.302653 * 0.1 / 3**0.5
    assert (found.value, found.low, found.high) == pytest.approx((0.6, 0.6 - reach, 0.6 + reach), abs=1e-6)


def test_the_interval_of_three_seeds_covers_the_truth_in_95_percent() -> None:
    draws = np.random.default_rng(0).normal(0.4, 0.05, size=(4000, 3))
    found = [over_seeds(draw.tolist()) for draw in draws]
    held = fmean(one.low <= 0.4 <= one.high for one in found)  # type: ignore[union-attr, operator]
    assert held == pytest.approx(0.95, abs=0.015)


def test_one_seed_has_no_interval_and_no_seeds_have_no_mean() -> None:
    found = over_seeds([0.5])
    assert found is not None
    assert (found.value, found.low, found.high) == (0.5, None, None)
    assert over_seeds([]) is None


def test_equal_seeds_have_no_interval() -> None:
    """If two runs have the same number of right answers out of 40, a third need not have it, too."""
    found = over_seeds([0.0375, 0.0375])
    assert found is not None
    assert (found.value, found.low, found.high, found.n) == (0.0375, None, None, 2)
    rounded = over_seeds([0.1 + 0.2, 0.3, 0.3])
    assert rounded is not None
    assert rounded.low is None
