import dataclasses
from typing import get_args

import pytest

from vtune.errors import DataError
from vtune.metrics.by_source import by_source
from vtune.schema.reward import Reward
from vtune.schema.trajectory import Call, Status, Trajectory

LOOK = Call(tool="python", arguments="{}", status="ok")
LAZY = dataclasses.replace(LOOK, flags=("whole_image", "repeated_crop"))
FAILED = dataclasses.replace(LOOK, status="error", flags=("sandbox_error",))


def reward(total: float | None, accuracy: float | None = 1.0, tool: float | None = 1.0) -> Reward:
    return Reward(total=total, accuracy=accuracy, format=1.0, tool=tool, why="")


QUIZ = [
    Trajectory(
        sample_id="quiz/1",
        source="quiz",
        calls=(LOOK, LAZY),
        tool_scores=(1.0, -0.5),
        loss_mask=(False, True, True, True),
        reward=reward(1.5, tool=0.25),
    ),
    Trajectory(
        sample_id="quiz/2",
        source="quiz",
        calls=(FAILED, LAZY),
        tool_scores=(-0.5, -0.5),
        loss_mask=(False, True),
        stop_reason="length",
        reward=reward(0.5, accuracy=0.5, tool=-0.5),
    ),
    Trajectory(sample_id="quiz/3", source="quiz", reward=reward(0.0, accuracy=0.0, tool=0.0)),
    Trajectory(
        sample_id="quiz/4",
        source="quiz",
        calls=(LOOK,),
        tool_scores=(None,),
        stop_reason="turns",
        reward=reward(None, tool=None),
    ),
]
BROKEN = [Trajectory(sample_id="broken/1", source="broken", stop_reason="error", reward=None)]
CALLS = {f"calls_{status}": 0.0 for status in (*get_args(Status), "invalid")}


def test_a_step_of_numbers_told_in_full() -> None:
    rows = by_source([*QUIZ, *BROKEN], evidence_score=1.0)
    assert list(rows) == ["broken", "quiz", "all"]
    assert rows["quiz"] == pytest.approx(
        {
            "trajectories": 4,
            "unscored": 0.25,
            "reward": 2 / 3,
            "reward_accuracy": 2.5 / 4,
            "reward_format": 1.0,
            "reward_tool": -0.25 / 3,
            "accuracy": 0.5,
            "tool_calls": 1.25,
            "no_tool": 0.25,
            "evidence_rate": 1 / 3,
            "red_flags": 0.75,
            "response_tokens": 1.0,
            "truncated": 0.5,
        }
        | CALLS
        | {"calls_ok": 4, "calls_error": 1}
    )
    assert rows["all"]["trajectories"] == 5
    assert rows["all"]["unscored"] == pytest.approx(0.4)


def test_what_could_not_be_measured_is_a_gap_and_not_a_zero() -> None:
    row = by_source(BROKEN, evidence_score=1.0)["broken"]
    assert row["unscored"] == 1.0
    assert not {"reward", "reward_accuracy", "reward_format", "reward_tool", "accuracy"} & set(row)


def test_no_trajectories_make_no_rows() -> None:
    assert by_source([], evidence_score=1.0) == {}


def test_a_source_may_not_take_the_name_of_the_row_over_all() -> None:
    with pytest.raises(DataError, match="`all`"):
        by_source([dataclasses.replace(QUIZ[0], source="all")], evidence_score=1.0)
