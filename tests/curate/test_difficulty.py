import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from vtune.curate.difficulty import Band, FirstPass, certain, outside, settled

UNSOLVED_OR_SOLVED = Band(of="mean", above=0, below=1)
CODEV = Band(of="mean", at_most=0.9)
IOU = Band(of="sum", at_least=2, at_most=10)


@pytest.mark.parametrize(
    ("band", "scores", "kept"),
    [
        (UNSOLVED_OR_SOLVED, [0.0] * 8, False),
        (UNSOLVED_OR_SOLVED, [1.0] * 8, False),
        (UNSOLVED_OR_SOLVED, [1.0] + [0.0] * 7, True),
        (CODEV, [1.0] * 8, False),
        (CODEV, [1.0] * 7 + [0.0], True),
        (CODEV, [0.0] * 8, True),
        (IOU, [0.12] * 16, False),
        (IOU, [0.125] * 16, True),
        (IOU, [0.625] * 16, True),
        (IOU, [0.7] * 16, False),
        (CODEV, [0.9] * 8, True),  # the mean in floating point is slightly higher
        (Band(of="sum", at_most=0.3), [0.1] * 3, True),
    ],
)
def test_the_bands_match_the_papers(band: Band, scores: list[float], kept: bool) -> None:
    assert (outside(band, scores) is None) is kept


def test_the_reason_says_whether_it_was_too_easy_or_too_hard() -> None:
    assert (outside(IOU, [0.0] * 16) or "").startswith("too hard: the sum of 16 rollouts is 0")
    assert (outside(CODEV, [1.0] * 8) or "").startswith("too easy: the mean of 8 rollouts is 1")


SCORES = st.lists(st.floats(0, 1), min_size=1, max_size=8)
BANDS = st.sampled_from([UNSOLVED_OR_SOLVED, CODEV, IOU, Band(of="mean", at_least=0.25, below=0.75)])


@given(BANDS, SCORES, st.lists(st.floats(0, 1), max_size=8))
def test_a_certain_decision_holds_whatever_scores_follow(
    band: Band, first: list[float], more: list[float]
) -> None:
    if certain(band, first, len(first) + len(more)):
        assert outside(band, [*first, *more]) is None


def test_one_right_and_one_wrong_answer_settle_a_pass_rate_between_0_and_1() -> None:
    assert certain(UNSOLVED_OR_SOLVED, [1.0, 0.0], 8)
    assert not certain(UNSOLVED_OR_SOLVED, [1.0, 1.0], 8)
    assert certain(CODEV, [1.0, 0.0], 8)
    assert not certain(CODEV, [1.0, 1.0], 8)


def test_the_first_pass_drops_only_the_extremes_in_the_recipe() -> None:
    assert settled(FirstPass(rollouts=2, easy=1.0, hard=None), [1.0, 1.0])
    assert settled(FirstPass(rollouts=2, easy=1.0, hard=None), [0.0, 0.0]) is None
    assert settled(FirstPass(rollouts=2, easy=None, hard=0.0), [0.0, 0.0])
    assert settled(FirstPass(rollouts=2, easy=1.0, hard=0.0), [1.0, 0.0]) is None


@pytest.mark.parametrize("bounds", [{}, {"above": 0, "at_least": 0}, {"below": 1, "at_most": 1}])
def test_a_band_without_a_bound_or_with_two_on_a_side_is_refused(bounds: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        Band(of="mean", **bounds)  # type: ignore[arg-type]
