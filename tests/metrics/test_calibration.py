from dataclasses import replace

import pytest

from vtune.metrics.calibration import Judged, calibration, majority, size_of


def judged(
    number: int, said: bool | None, truth: bool | None, *, correct: bool = True, target: float | None = 0.02
) -> Judged:
    return Judged(cluster=str(number), correct=correct, target=target, said=said, truth=truth)


def rows(*counts: tuple[bool | None, bool | None, int], **more: float) -> list[Judged]:
    every = [(said, truth) for said, truth, times in counts for _ in range(times)]
    return [judged(number, said, truth, **more) for number, (said, truth) in enumerate(every)]


def test_a_judge_is_calibrated_on_known_cases_and_corrected_on_the_rest() -> None:
    found = calibration(
        rows((True, True, 90), (False, True, 10), (True, False, 30), (False, False, 70), (True, None, 120),
             (False, None, 80)),
        seed=0,
    )  # fmt: skip
    assert found.agreement.n == 200
    assert found.agreement.agree == pytest.approx(0.8)
    assert found.agreement.kappa == pytest.approx(0.6)
    assert found.sensitivity is not None
    assert found.sensitivity.value == pytest.approx(0.9)
    assert found.specificity is not None
    assert found.specificity.value == pytest.approx(0.7)
    assert found.n == 200
    assert found.corrected is not None
    assert found.corrected.apparent == pytest.approx(0.6)
    assert found.corrected.share is not None
    assert found.corrected.share.value == pytest.approx(0.5)
    assert found.warning == ""


def test_rollouts_of_one_question_count_as_one_observation() -> None:
    once = rows((True, True, 20), (False, True, 5), (True, False, 5), (False, False, 20), (True, None, 25),
                (False, None, 25))  # fmt: skip
    one, many = calibration(once, seed=0).corrected, calibration(once * 8, seed=0).corrected
    assert one is not None
    assert one.share is not None
    assert many is not None
    assert many.share is not None
    assert many.share.value == pytest.approx(one.share.value)
    assert many.share.low == pytest.approx(one.share.low, abs=0.01)
    assert many.share.high == pytest.approx(one.share.high, abs=0.01)


def test_a_calibrated_judge_is_not_reported_as_uncalibrated_without_right_answers() -> None:
    counts = (True, True, 9), (False, True, 1), (True, False, 1), (False, False, 9)
    found = calibration([replace(one, correct=False) for one in rows(*counts)], seed=0)
    assert (found.n, found.corrected, found.warning) == (0, None, "")
    assert found.agreement.n == 20
    assert "known not to show it" in calibration(rows(*counts[:2]), seed=0).warning
    assert "known to show the target" in calibration(rows(*counts[2:]), seed=0).warning


def test_targets_are_counted_by_their_size() -> None:
    found = calibration(
        [judged(0, True, True, target=0.0005), judged(1, False, True, target=0.0005), judged(2, True, True)],
        seed=0,
    )
    assert {size: one.n for size, one in found.by_size.items()} == {"under 0.1 %": 2, "1 to 10 %": 1}
    assert found.by_size["under 0.1 %"].agree == 0.5
    assert [size_of(share) for share in (None, 0.001, 0.1)] == ["unknown", "0.1 to 1 %", "from 10 %"]


def test_too_little_calibration_data_gives_a_warning() -> None:
    assert "known not to show it" in calibration(rows((True, True, 9)), seed=0).warning
    assert "known to show the target" in calibration(rows((True, False, 9)), seed=0).warning
    dice = calibration(rows((True, True, 9), (False, True, 9), (True, False, 9), (False, False, 9)), seed=0)
    assert "Youden's J is 0.00" in dice.warning


def test_a_majority_of_judges_decides_and_a_tie_does_not() -> None:
    assert majority([True, True, False]) is True
    assert majority([True, None, False, False]) is False
    assert majority([True, False]) is None
    assert majority([None]) is None
