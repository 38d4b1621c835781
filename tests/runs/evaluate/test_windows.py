from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vtune.runs.evaluate.windows as vtune_windows
from tests.schema.records import SAMPLE, TRAJECTORY
from vtune.errors import DataError
from vtune.rollout.agent import Job
from vtune.runs.evaluate.questions import Question
from vtune.runs.evaluate.rollout_files import keep, kept, reopen_unscored, restored
from vtune.runs.evaluate.windows import drawn, part, portions, slim, windows
from vtune.schema.message import Picture
from vtune.schema.parquet import write_trajectories
from vtune.schema.reward import Reward
from vtune.schema.trajectory import Trajectory

RIGHT = Reward(total=1.0, accuracy=1.0, format=1.0, tool=None, why="")


def questions(count: int, size: int = 1) -> list[Question]:
    return [(replace(SAMPLE, id=f"quiz/{number}"), (bytes(size),)) for number in range(count)]


@given(
    st.integers(0, 40),
    st.integers(1, 3),
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 7)), max_size=5),
)
def test_missing_rollouts_are_generated_once_and_in_order(
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


def test_a_part_is_closed_once_its_pictures_reach_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vtune_windows, "BYTES", 25)
    found = list(windows(questions(7, size=10), rollouts=1, done={}))
    assert [(window.first, len(window.questions)) for window in found] == [(0, 3), (3, 3), (6, 1)]


def test_trajectories_come_in_groups_that_fit() -> None:
    many = [replace(TRAJECTORY, images=(Picture(data=bytes(10)),), messages=())] * 7
    assert [len(group) for group in portions(many, rows=4, size=1000)] == [4, 3]
    assert [len(group) for group in portions(many, rows=100, size=20)] == [2, 2, 2, 1]
    assert list(portions([], rows=4, size=1)) == []


def test_a_part_with_an_unscored_trajectory_is_reopened_and_keeps_the_rest(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "trajectories"

    def row(question: int, rollout: int, **more: Any) -> Trajectory:
        return replace(TRAJECTORY, group=question, rollout=rollout, **{"reward": RIGHT, **more})

    unjudged = replace(RIGHT, total=None, why="the judge gave no reply")
    failed = row(2, 1, reward=None, stop_reason="error")
    write_trajectories(part(folder, 0), [row(0, 0), row(0, 1)])
    write_trajectories(part(folder, 1), [row(1, 0), row(1, 1, reward=unjudged)])
    write_trajectories(part(folder, 2), [row(2, 0), failed])
    write_trajectories(part(folder, 3), [row(3, 0), row(3, 1), row(4, 0), row(4, 1)])
    keep(tmp_path, row(0, 1))  # the process was killed after its portion was written
    assert drawn(folder, rollouts=2) == {0: 1, 1: 1, 2: 1, 3: 2}
    reopen_unscored(tmp_path, folder, rollouts=2)
    assert drawn(folder, rollouts=2) == {0: 1, 3: 2}
    found = {key: restored(tmp_path, Job(SAMPLE, (), *key, 0, ())) for key in product(range(5), range(2))}
    assert {key: t.reward for key, t in found.items() if t is not None} == {
        (1, 0): RIGHT,
        (1, 1): unjudged,
        (2, 0): RIGHT,
    }
    assert kept(tmp_path) == 3
    (half,) = (tmp_path / "ended").glob("00000002-*")
    half.rename(half.with_name(f".{half.name}.0.part"))  # what a killed writer leaves
    assert kept(tmp_path) == 2


def test_reloaded_trajectories_share_the_questions_pictures(tmp_path: Path) -> None:
    large = bytes(2**20 + 1)
    pictures = (Picture(data=large), Picture(data=b"small"), Picture(data=b"a crop", origin="tool"))
    ended = replace(TRAJECTORY, group=7, rollout=0, images=pictures, messages=(), calls=(), tool_scores=())
    keep(tmp_path, ended)
    job = Job(SAMPLE, (large, b"small"), 7, 0, 0, ())
    again = restored(tmp_path, job)
    assert again is not None
    assert [picture.data for picture in again.images] == [large, b"small", b"a crop"]
    assert all(again.images[index].data is job.images[index] for index in range(2))
    for name, one in (("now", ended), ("later", again)):
        write_trajectories(tmp_path / "trajectories" / name, [one], run=tmp_path)
    assert (tmp_path / "trajectories/now").read_bytes() == (tmp_path / "trajectories/later").read_bytes()


def test_a_file_emptied_by_a_power_failure_is_reported_with_a_fix(tmp_path: Path) -> None:
    keep(tmp_path, replace(TRAJECTORY, group=3, rollout=0, reward=RIGHT, stop_reason="stop"))
    (ended,) = (tmp_path / "ended").iterdir()
    portion = part(tmp_path / "trajectories", 0)
    portion.parent.mkdir()
    for file in (ended, portion):
        file.write_bytes(b"")
    job = Job(sample=SAMPLE, images=(), group=3, rollout=0, policy_version=0, key=(0, 0, 3, 0))
    for file, read in (
        (ended, lambda: restored(tmp_path, job)),
        (portion, lambda: reopen_unscored(tmp_path, portion.parent, rollouts=1)),
    ):
        with pytest.raises(DataError) as refused:
            read()
        assert refused.value.where == str(file)
        assert refused.value.fix.startswith(f"remove {file}: --resume generates again only what it held")


def test_a_slim_trajectory_has_the_same_numbers() -> None:
    from vtune.metrics.by_source import by_source

    whole = [replace(TRAJECTORY, reward=RIGHT)] * 2
    assert by_source(map_slim(whole), evidence_score=1.0) == by_source(whole, evidence_score=1.0)
    assert slim(whole[0]).images == ()


def test_a_slim_trajectory_keeps_only_which_tokens_were_sampled() -> None:
    columns = {"token_ids": 5, "loss_mask": True, "logprobs": -0.5, "weight_versions": 0, "entropies": 0.5}
    drawn = replace(TRAJECTORY, **{name: (value,) * 9 for name, value in columns.items()})
    assert {name for name in columns if getattr(slim(drawn), name)} == {"loss_mask"}


def map_slim(trajectories: list) -> list:  # type: ignore[type-arg]
    return [slim(trajectory) for trajectory in trajectories]


def test_trajectories_of_the_same_length_share_their_masks() -> None:
    one, two = (
        replace(TRAJECTORY, token_ids=(n,) * 9, loss_mask=mask, logprobs=(None,) * 9)
        for n, mask in enumerate(((True,) * 5 + (False,) * 4, (False,) * 4 + (True,) * 5))
    )
    assert slim(one).loss_mask == (True,) * 5
    assert slim(one).loss_mask is slim(two).loss_mask
