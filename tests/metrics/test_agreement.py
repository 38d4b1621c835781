import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtune.metrics.agreement import agreement

YES_NO = st.booleans()


def pairs(both: int, first: int, second: int, neither: int) -> list[tuple[bool | None, bool | None]]:
    counts = {(True, True): both, (True, False): first, (False, True): second, (False, False): neither}
    return [answers for answers, count in counts.items() for _ in range(count)]


def test_kappa_matches_a_hand_calculation() -> None:
    found = agreement(pairs(20, 5, 10, 15))
    assert (found.n, found.agree) == (50, 0.7)
    assert found.kappa == pytest.approx(0.4)  # (0.7 - 0.5) / (1 - 0.5)
    assert (found.both, found.first_only, found.second_only, found.neither) == (20, 5, 10, 15)


def test_items_without_a_verdict_of_either_judge_are_left_out() -> None:
    assert agreement([*pairs(1, 0, 0, 1), (None, True), (False, None)]) == agreement(pairs(1, 0, 0, 1))
    assert agreement([(None, None)]).agree is None


def test_kappa_is_undefined_if_judges_give_only_one_verdict() -> None:
    found = agreement(pairs(7, 0, 0, 0))
    assert (found.agree, found.kappa) == (1.0, None)


@given(st.lists(st.tuples(YES_NO, YES_NO), min_size=1))
def test_the_order_of_the_judges_does_not_matter_and_kappa_stays_below_one(
    answers: list[tuple[bool, bool]],
) -> None:
    one, other = agreement(answers), agreement([(b, a) for a, b in answers])
    assert (one.agree, one.kappa) == (other.agree, other.kappa)
    if one.kappa is not None:
        assert -1.0 <= one.kappa <= 1.0
        assert (one.kappa == 1.0) == (one.agree == 1.0)
