import dataclasses
from collections.abc import Iterator
from typing import get_args

import pytest

from vtune.data import shapes
from vtune.errors import DataError
from vtune.metrics.by_source import by_source
from vtune.schema.message import Message
from vtune.schema.reward import Reward
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Call, Status, Trajectory
from vtune.verifiers.detection import verify_detection, with_iou

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


def test_rollouts_that_failed_on_our_side_count_for_no_habit() -> None:
    """The record keeps the reason in a call that the policy never made, e.g. if an endpoint gave no reply."""
    failed = Trajectory(
        sample_id="quiz/9",
        source="quiz",
        calls=(LOOK, dataclasses.replace(LOOK, status="infra", error="no reply")),
        tool_scores=(None, None),
        stop_reason="error",
        reward=reward(None, accuracy=None, tool=None),
    )
    idle = QUIZ[2]
    alone, beside = (by_source(some, evidence_score=1.0)["quiz"] for some in ([idle], [idle, failed]))
    apart = {"trajectories", "unscored", "calls_infra"}
    assert {n: v for n, v in beside.items() if n not in apart} == {
        n: v for n, v in alone.items() if n not in apart
    }
    assert (beside["trajectories"], beside["unscored"], beside["calls_infra"]) == (2, 0.5, 1)
    assert beside["evidence_rate"] == 0.0


def test_the_evidence_rate_is_missing_if_most_looks_are_unscored() -> None:
    """E.g. if the tool reward has no weight: the judge is not asked, and only flags are scored."""
    unasked, silent, flagged, idle = (
        Trajectory(sample_id="q", source="q", calls=calls, tool_scores=scores, reward=reward(1.0, tool=None))
        for calls, scores in (((LOOK,), (None,)), ((LOOK,), ()), ((LAZY,), (-0.5,)), ((), ()))
    )
    for rows in ([unasked, unasked, flagged, idle], [silent, silent, flagged], [silent]):
        assert "evidence_rate" not in by_source(rows, evidence_score=1.0)["q"]
    assert by_source([silent, QUIZ[0], flagged], evidence_score=1.0)["all"]["evidence_rate"] == 0.5
    assert by_source([idle], evidence_score=1.0)["q"]["evidence_rate"] == 0.0


def test_actions_in_an_environment_are_not_counted_as_looks() -> None:
    moved, still = (
        Trajectory(
            sample_id="maze/1",
            source="maze",
            calls=(Call(tool="maze", arguments="{}", status="ok"),) * count,
            tool_scores=(None,) * count,
            reward=reward(1.0, tool=0.0),
            needs_look=False,
        )
        for count in (2, 0)
    )
    rows = by_source([moved, still, QUIZ[0]], evidence_score=1.0)
    assert rows["maze"]["tool_maze_calls"] == 2
    assert not {"evidence_rate", "tool_maze_score"} & rows["maze"].keys()
    assert rows["all"]["evidence_rate"] == rows["quiz"]["evidence_rate"] == 1.0


def test_all_numbers_of_a_step_are_as_expected() -> None:
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
            "reflection_ratio": 0.0,
            "leaked_placeholders": 0.0,
            "tool_python_calls": 5,
            "tool_python_errors": 1,
            "tool_python_score": -0.5 / 4,
        }
        | CALLS
        | {"calls_ok": 4, "calls_error": 1}
    )
    assert rows["all"]["trajectories"] == 5
    assert rows["all"]["unscored"] == pytest.approx(0.4)


def test_an_unmeasured_number_is_missing_not_zero() -> None:
    row = by_source(BROKEN, evidence_score=1.0)["broken"]
    assert row["unscored"] == 1.0
    assert not {"reward", "reward_accuracy", "reward_format", "reward_tool", "accuracy"} & set(row)


def test_looks_that_were_not_judged_are_missing() -> None:
    without_call, flagged = (
        dataclasses.replace(QUIZ[2], reward=reward(1.3, tool=0.0)),
        dataclasses.replace(QUIZ[2], calls=(LAZY,), tool_scores=(-0.5,), reward=reward(1.3, tool=-0.5)),
    )
    unasked = dataclasses.replace(QUIZ[3], reward=reward(1.3, tool=None))
    row = by_source([without_call, flagged, unasked], evidence_score=1.0)["quiz"]
    assert not {"evidence_rate", "reward_tool", "tool_python_score"} & set(row)
    assert (row["red_flags"], row["tool_python_calls"]) == (1 / 3, 2)
    # If a judge fails, the total is unscored, too, but its earlier verdicts count.
    row = by_source([without_call, flagged, QUIZ[3]], evidence_score=1.0)["quiz"]
    assert (row["evidence_rate"], row["reward_tool"]) == (0.0, -0.25)


def test_no_trajectories_make_no_rows() -> None:
    assert by_source([], evidence_score=1.0) == {}


def test_a_source_may_not_have_the_name_of_the_total_row() -> None:
    with pytest.raises(DataError, match="'all' is taken"):
        by_source([dataclasses.replace(QUIZ[0], source="all")], evidence_score=1.0)


def said(reply: str, accuracy: float | None = 1.0, **parts: float) -> Trajectory:
    return Trajectory(
        sample_id="boxes/1",
        source="boxes",
        messages=(Message("user", "Wait, <|image_pad|> is data."), Message("assistant", reply)),
        reward=dataclasses.replace(reward(accuracy, accuracy), parts=parts),
    )


def test_reflection_is_reported_with_its_accuracy() -> None:
    replies = [
        said("<think>So it is.</think>"),
        said("<think>WAIT, no.</think>", 0.5),
        said("Let me re-check.", 1.0),
        said("I verify.", None),
    ]
    row = by_source(replies, evidence_score=1.0)["boxes"]
    assert row["reflection_ratio"] == 0.75
    assert row["reflection_accuracy"] == 0.5
    assert "reflection_accuracy" not in by_source(replies[:1], evidence_score=1.0)["boxes"]


def test_a_placeholder_spelt_by_the_policy_is_a_leak_but_not_one_in_the_prompt() -> None:
    row = by_source(
        [said("<|image_pad|><|image_pad|>"), said("<image>"), said("an image")], evidence_score=1.0
    )
    assert row["boxes"]["leaked_placeholders"] == pytest.approx(2 / 3)


def test_verifier_details_are_averaged_over_replies_that_have_them() -> None:
    boxes = [said("a", **{"iou@50": 1.0, "ap": 0.5}), said("b", **{"iou@50": 0.0}), said("c")]
    row = by_source(boxes, evidence_score=1.0)["boxes"]
    assert (row["iou@50"], row["ap"]) == (0.5, 0.5)
    assert "iou@75" not in row


def test_each_tool_has_separate_numbers() -> None:
    zoom = dataclasses.replace(LOOK, tool="zoom")
    broken = dataclasses.replace(zoom, status="infra")
    two = dataclasses.replace(QUIZ[0], calls=(LOOK, zoom, broken), tool_scores=(1.0, 0.5, None))
    row = by_source([two, QUIZ[1]], evidence_score=1.0)["quiz"]
    assert {
        name: value for name, value in row.items() if name.startswith("tool_") and name != "tool_calls"
    } == {
        "tool_python_calls": 3,
        "tool_python_errors": 1,
        "tool_python_score": 0.0,
        "tool_zoom_calls": 2,
        "tool_zoom_errors": 0,
        "tool_zoom_score": 0.5,
    }


def test_searches_that_found_nothing_are_counted() -> None:
    outputs = ("1. Sark", "No matching passages were found.", "No matching passages were found.")
    calls = tuple(Call(tool="text_search_tool", arguments="{}", status="ok", output=one) for one in outputs)
    pictures = Call(
        tool="image_search_tool", arguments="{}", status="ok", output="No matching images were found."
    )
    printed = Call(tool="python", arguments="{}", status="ok", output=outputs[1])
    searched = dataclasses.replace(QUIZ[0], calls=(*calls, pictures, printed), tool_scores=())
    row = by_source([searched], evidence_score=1.0)["quiz"]
    assert {name: value for name, value in row.items() if name.endswith("_empty")} == {
        "tool_image_search_tool_empty": 1,
        "tool_text_search_tool_empty": 2,
    }


def test_no_verifier_detail_has_the_name_of_another_number() -> None:
    """Otherwise one would hide the other."""
    parts = set(verify_detection("", with_iou(next(shaped("detection")), [0.5])).parts)
    assert {"iou@50", "iou@75", "iou@95", "iou@99", "ap"} <= parts
    assert not parts & set(by_source([*QUIZ, said("wait")], evidence_score=1.0)["all"])


def shaped(task: str) -> Iterator[Sample]:
    return (sample for sample in shapes.samples(6, seed=0, split="train") if sample.ability == task)
