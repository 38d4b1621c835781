from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtune.runs.view.thinning import thinned

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300)


def curve(values: list[float]) -> dict[str, list[float]]:
    return {"steps": [float(3 * step) for step in range(len(values))], "values": values}


@given(VALUES, st.integers(1, 40))
def test_a_thinned_curve_ends_where_it_did_and_its_points_are_means_of_neighbours(
    values: list[float], most: int
) -> None:
    given_ = curve(values)
    found = thinned({"all": {"reward": given_}}, most)["all"]["reward"]
    assert len(found["steps"]) == len(found["values"]) <= most
    assert found["steps"][-1] == given_["steps"][-1]
    before = -1.0
    for step, value in zip(found["steps"], found["values"], strict=True):
        inside = [v for s, v in zip(given_["steps"], values, strict=True) if before < s <= step]
        assert value == pytest.approx(fmean(inside), rel=1e-5)
        before = step


def test_points_of_seeds_at_different_progress_share_steps() -> None:
    far, near = ({"all": {"reward": curve([1.0] * count)}} for count in (2000, 1200))
    steps = [thinned(one, 100)["all"]["reward"]["steps"] for one in (far, near)]
    assert [len(one) for one in steps] == [63, 75]
    assert set(steps[0][:-1]) & set(range(3 * 1200)) <= set(steps[1])


def test_a_short_curve_is_unchanged() -> None:
    sources = {"all": {"reward": curve([1.0, 2.0, 4.0])}, "quiz": {}}
    assert thinned(sources, 3) == sources
