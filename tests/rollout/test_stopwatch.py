import pytest

from vtune.rollout import stopwatch
from vtune.rollout.stopwatch import Stopwatch


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(stopwatch.time, "monotonic", clock)
    return clock


def test_waiting_time_counts_once_however_many_wait(clock: Clock) -> None:
    watch = Stopwatch()
    clock.now += 5
    with watch:
        clock.now += 1
        with watch:
            clock.now += 2
        clock.now += 4
    clock.now += 8
    assert watch.take() == 7
    assert watch.take() == 0


def test_covered_time_does_not_count(clock: Clock) -> None:
    watch = Stopwatch()
    with watch:
        clock.now += 1
        with watch.covered():
            clock.now += 2
            with watch.covered():
                clock.now += 4
            clock.now += 8
        clock.now += 16
    with watch.covered(), watch:
        clock.now += 32
    assert watch.take() == 17
