from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vtune.runs.evaluate.windows as vtune_windows
from tests.schema.records import SAMPLE, TRAJECTORY
from vtune.runs.evaluate.questions import Question
from vtune.runs.evaluate.windows import drawn, drop_unscored, part, portions, slim, windows
from vtune.schema.message import Picture
from vtune.schema.parquet import write_trajectories
from vtune.schema.reward import Reward

RIGHT = Reward(total=1.0, accuracy=1.0, format=1.0, tool=None, why="")


def questions(count: int, size: int = 1) -> list[Question]:
    return [(replace(SAMPLE, id=f"quiz/{number}"), (bytes(size),)) for number in range(count)]


@given(
    st.integers(0, 40),
    st.integers(1, 3),
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 7)), max_size=5),
)
def test_what_is_not_drawn_is_drawn_once_and_in_order(
    count: int, rollouts: int, gaps: list[tuple[int, int]]
) -> None:
    done: dict[int, int] = {}
    position = 0
    for gap, length in gaps:
        if position + gap + length <= count:
            done[position + gap] = length
            position += gap + length
    drawn_before = {first + offset for first, length in done.items() for offset in range(length)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vtune_windows, "ROLLOUTS", 6)
        found = list(windows(questions(count), rollouts=rollouts, done=done))
    numbers = [window.first + offset for window in found for offset in range(len(window.questions))]
    assert numbers == [number for number in range(count) if number not in drawn_before]
    ids = [sample.id for window in found for sample, _ in window.questions]
    assert ids == [f"quiz/{number}" for number in numbers]
    assert all(len(window.questions) <= 6 for window in found)


def test_a_portion_is_closed_once_its_pictures_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vtune_windows, "BYTES", 25)
    found = list(windows(questions(7, size=10), rollouts=1, done={}))
    assert [(window.first, len(window.questions)) for window in found] == [(0, 3), (3, 3), (6, 1)]


def test_trajectories_come_in_groups_that_fit() -> None:
    many = [replace(TRAJECTORY, images=(Picture(data=bytes(10)),), messages=())] * 7
    assert [len(group) for group in portions(many, rows=4, size=1000)] == [4, 3]
    assert [len(group) for group in portions(many, rows=100, size=20)] == [2, 2, 2, 1]
    assert list(portions([], rows=4, size=1)) == []


def test_a_portion_with_an_unscored_trajectory_is_drawn_again(tmp_path: Path) -> None:
    scored = replace(TRAJECTORY, reward=RIGHT)
    lost = replace(TRAJECTORY, reward=replace(RIGHT, total=None))
    write_trajectories(part(tmp_path, 0), [scored, scored])
    write_trajectories(part(tmp_path, 1), [scored, lost])
    write_trajectories(part(tmp_path, 2), [replace(scored, reward=None), scored])
    write_trajectories(part(tmp_path, 3), [scored] * 4)
    assert drawn(tmp_path, rollouts=2) == {0: 1, 1: 1, 2: 1, 3: 2}
    drop_unscored(tmp_path)
    assert drawn(tmp_path, rollouts=2) == {0: 1, 3: 2}


def test_a_slim_trajectory_has_the_same_numbers() -> None:
    from vtune.metrics.by_source import by_source

    whole = [replace(TRAJECTORY, reward=RIGHT)] * 2
    assert by_source(map_slim(whole), evidence_score=1.0) == by_source(whole, evidence_score=1.0)
    assert slim(whole[0]).images == ()


def map_slim(trajectories: list) -> list:  # type: ignore[type-arg]
    return [slim(trajectory) for trajectory in trajectories]
