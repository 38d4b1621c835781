import pytest

from vtune.metrics.log import MetricsLine
from vtune.metrics.tightening import WINDOW, tightenings


def step(
    number: int, threshold: float | None, reward: float | None = None, **more: float
) -> list[MetricsLine]:
    over_all = {} if threshold is None else {"iou_threshold": threshold}
    lines = [MetricsLine(number, "all", {**over_all, "reward_accuracy": 0.0, "iou": 0.0})]
    if reward is not None:
        lines.append(MetricsLine(number, "boxes", {"iou": 0.5, "reward_accuracy": reward, **more}))
    return [*lines, MetricsLine(number, "quiz", {"reward_accuracy": 1.0})]


def test_a_fall_at_a_tightening_and_its_recovery_are_reported_for_box_sources() -> None:
    rewards = [0.0] * 5 + [0.8] * 10 + [0.2] * 5 + [0.5] * 15 + [0.9] * 5
    lines = [one for n, reward in enumerate(rewards) for one in step(n, 0.85 if n < 15 else 0.95, reward)]
    (found,) = tightenings(lines)
    assert (found["step"], found["old"], found["new"]) == (15, 0.85, 0.95)
    assert set(found["sources"]) == {"boxes"}
    assert found["sources"]["boxes"] == {
        name: pytest.approx(v) for name, v in {"before": 0.8, "after": 0.2, "end": 0.9}.items()
    }


def test_a_window_stays_in_its_stage_and_a_loosening_is_not_a_tightening() -> None:
    thresholds = [0.5, 0.5, 0.6, 0.6, 0.5, 0.6]
    rewards = [0.1, 0.3, 0.5, 0.7, None, 1.0]
    lines = [
        one
        for n, (threshold, reward) in enumerate(zip(thresholds, rewards, strict=True))
        for one in step(n, threshold, reward)
    ]
    first, second = tightenings(lines)
    assert len(rewards) > WINDOW
    assert first["sources"]["boxes"] == {
        name: pytest.approx(v) for name, v in {"before": 0.2, "after": 0.6, "end": 0.6}.items()
    }
    assert (second["step"], second["sources"]["boxes"]) == (5, {"before": None, "after": 1.0, "end": 1.0})


def test_a_run_without_a_threshold_has_no_tightening() -> None:
    assert tightenings([one for n in range(4) for one in step(n, None, 0.5)]) == []
    assert tightenings([]) == []
