import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reward.build import STAGED, looks
from vtune.errors import RunFailed
from vtune.reward.recipe import IouSchedule
from vtune.reward.schedule import Tightening, next_threshold, success_rate, thresholds_at
from vtune.schema.reward import Reward
from vtune.schema.trajectory import Trajectory

MILESTONES = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.99)


def adaptive(target: float = 0.5) -> IouSchedule:
    return IouSchedule(schedule="adaptive", thresholds=MILESTONES, until=(), target=target)


def replied(*overlaps: float | None) -> list[Trajectory]:
    """One trajectory per IoU; None means a question without boxes."""
    return [
        replace(
            looks(),
            reward=Reward(
                total=0.0,
                accuracy=0.0,
                format=0.0,
                tool=0.0,
                why="",
                parts={} if overlap is None else {"iou": overlap},
            ),
        )
        for overlap in overlaps
    ]


def test_the_stages_of_the_paper_begin_at_10_and_25_percent() -> None:
    course = [thresholds_at(STAGED, None, step=step, steps=100) for step in range(100)]
    assert course == [(0.85,)] * 10 + [(0.95,)] * 15 + [(0.99,)] * 75


@pytest.mark.parametrize("stages", [(0.7, 0.8, 0.85), (0.9, 0.95, 0.99)])
def test_the_loose_and_strict_variants_have_the_same_boundaries(stages: tuple[float, ...]) -> None:
    iou = STAGED.model_copy(update={"thresholds": stages})
    course = [thresholds_at(iou, None, step=step, steps=20)[0] for step in range(20)]
    assert course == [stages[0]] * 2 + [stages[1]] * 3 + [stages[2]] * 15


def test_a_stage_ends_exactly_at_its_stated_share() -> None:
    iou = STAGED.model_copy(update={"thresholds": (0.5, 0.9), "until": (0.28,)})
    course = [thresholds_at(iou, None, step=step, steps=25)[0] for step in range(25)]
    assert course == [0.5] * 7 + [0.9] * 18


@given(steps=st.integers(1, 300))
def test_stages_never_loosen(steps: int) -> None:
    course = [thresholds_at(STAGED, None, step=step, steps=steps) for step in range(steps)]
    assert course == sorted(course)


def test_fixed_and_average_thresholds_stay_constant() -> None:
    fixed = IouSchedule(schedule="fixed", thresholds=(0.5,), until=(), target=None)
    average = IouSchedule(schedule="average", thresholds=MILESTONES, until=(), target=None)
    for step in (0, 99):
        assert thresholds_at(fixed, None, step=step, steps=100) == (0.5,)
        assert thresholds_at(average, None, step=step, steps=100) == MILESTONES


def test_the_controller_promotes_demotes_and_stays() -> None:
    iou = adaptive(0.5)
    assert next_threshold(iou, 0.5, 0.6) == 0.55
    assert next_threshold(iou, 0.95, 0.6) == 0.99
    assert next_threshold(iou, 0.99, 1.0) == 0.99
    assert next_threshold(iou, 0.6, 0.4) == 0.55
    assert next_threshold(iou, 0.5, 0.0) == 0.5
    assert next_threshold(iou, 0.6, 0.5) == 0.6
    assert next_threshold(iou, 0.6, None) == 0.6


@given(st.lists(st.none() | st.floats(0, 1), max_size=30))
def test_the_controller_moves_one_milestone_at_a_time(rates: list[float | None]) -> None:
    reached: float | None = MILESTONES[0]
    for rate in rates:
        assert reached is not None
        before, reached = reached, next_threshold(adaptive(0.7), reached, rate)
        assert reached is not None
        assert abs(MILESTONES.index(reached) - MILESTONES.index(before)) <= 1


def test_success_is_counted_among_trajectories_with_boxes() -> None:
    assert success_rate(replied(0.5, 0.51, 0.9, None), (0.5,)) == pytest.approx(2 / 3)
    assert success_rate(replied(0.6, 0.8), (0.5, 0.9)) == 0.5
    assert success_rate(replied(None), (0.5,)) is None
    assert success_rate([looks()], (0.5,)) is None


def test_an_unscored_trajectory_is_not_a_failure() -> None:
    (good, lost) = replied(0.9, 0.1)
    assert lost.reward is not None
    lost = replace(lost, reward=replace(lost.reward, accuracy=None))
    assert success_rate([good, lost], (0.5,)) == 1.0


def test_a_resumed_run_continues_at_the_threshold_it_had_reached() -> None:
    steps = [replied(0.9), replied(0.9, 0.1, 0.9), replied(None), replied(0.1), replied(0.99), replied(0.7)]
    whole = Tightening(adaptive(), steps=len(steps), saved=None)
    rows = [whole.after(step, done) for step, done in enumerate(steps)]
    assert [row["iou_threshold"] for row in rows] == [0.5, 0.55, 0.6, 0.6, 0.55, 0.6]
    assert ["iou_success" in row for row in rows] == [True, True, False, True, True, True]
    for cut in range(len(steps)):
        first = Tightening(adaptive(), steps=len(steps), saved=None)
        for step in range(cut):
            first.after(step, steps[step])
        saved = json.loads(json.dumps({"step": cut} | first.state))
        second = Tightening(adaptive(), steps=len(steps), saved=saved)
        assert [second.after(step, steps[step]) for step in range(cut, len(steps))] == rows[cut:]


def test_a_checkpoint_without_a_threshold_resumes_only_if_none_is_needed() -> None:
    old = {"step": 3}
    assert Tightening(None, steps=9, saved=old).at(3) == ()
    assert Tightening(None, steps=9, saved=old).after(3, replied(0.5)) == {}
    assert Tightening(STAGED, steps=100, saved=old).at(50) == (0.99,)
    with pytest.raises(RunFailed, match="the checkpoint has None"):
        Tightening(adaptive(), steps=9, saved=old)
