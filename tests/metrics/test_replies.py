import json
from dataclasses import replace
from pathlib import Path

import pytest

from vtune.errors import DataError
from vtune.metrics.replies import (
    REFLECTIVE,
    examples,
    forget_replies,
    keep_replies,
    last_replies,
    reflects,
    stored_replies,
)
from vtune.schema.message import Message
from vtune.schema.parquet import write_trajectories
from vtune.schema.reward import Reward
from vtune.schema.trajectory import Trajectory


def reply(total: float | None, number: int = 0, source: str = "quiz") -> Trajectory:
    reward = Reward(total=total, accuracy=total, format=None, tool=None, why="so", parts={"iou": 0.5})
    said = (Message("user", "What?"), Message("assistant", f"It is {total}."))
    return Trajectory(
        sample_id=f"{source}/{number}", source=source, messages=said, rollout=number, reward=reward
    )


@pytest.mark.parametrize("word", REFLECTIVE)
def test_each_of_the_15_words_is_found_in_any_case(word: str) -> None:
    assert len(set(REFLECTIVE)) == 15
    assert reflects(f"Let me {word.upper()} it.")


def test_a_plain_reply_does_not_reflect() -> None:
    assert not reflects("<think>The sign is red.</think><answer>7</answer>")


def test_examples_range_from_worst_to_best_for_every_source() -> None:
    drawn = [reply(total, number) for number, total in enumerate((0.5, 1.0, None, 0.0, 0.75))]
    drawn += [reply(0.25, source="boxes")]
    shown = examples(drawn, each=3)
    assert [(t.source, t.reward and t.reward.total) for t in shown] == [
        ("boxes", 0.25),
        ("quiz", 0.0),
        ("quiz", 0.75),
        ("quiz", 1.0),
    ]
    assert examples(drawn[::-1], each=3) == shown
    # An unscored reply does not displace a scored one.
    rewards = [t.reward and t.reward.total for t in examples(drawn, each=6)]
    assert rewards == [0.25, 0.0, 0.5, 0.75, 1.0, None]
    assert [t.reward and t.reward.total for t in examples(drawn[2:3], each=2)] == [None]


def test_kept_replies_are_read_newest_first_and_a_repeated_step_replaces_its_own(
    tmp_path: Path,
) -> None:
    assert last_replies(tmp_path) == []
    keep_replies(tmp_path, 9, [reply(0.5)])
    keep_replies(tmp_path, 10, [reply(0.25), reply(None)])
    keep_replies(tmp_path, 10, [reply(1.0), replace(reply(0.0), reward=None)])
    first, second = last_replies(tmp_path)
    assert (first["step"], first["reward"], first["reply"]) == (10, 1.0, "It is 1.0.")
    assert first["parts"] == {"iou": 0.5}
    assert (second["reward"], second["parts"]) == (None, {})
    assert sorted(path.name for path in (tmp_path / "replies").iterdir()) == [
        "step-000009.jsonl",
        "step-000010.jsonl",
    ]


def test_a_broken_file_of_replies_is_reported(tmp_path: Path) -> None:
    keep_replies(tmp_path, 3, [reply(0.5)])
    (tmp_path / "replies/step-000003.jsonl").write_text(json.dumps([1]) + "\n")
    with pytest.raises(DataError, match="replies"):
        last_replies(tmp_path)


def test_replies_of_repeated_steps_are_deleted(tmp_path: Path) -> None:
    for step in (0, 4, 5):
        keep_replies(tmp_path, step, [reply(1.0)])
    forget_replies(tmp_path, 4)
    assert [path.name for path in (tmp_path / "replies").iterdir()] == ["step-000000.jsonl"]


@pytest.mark.parametrize("name", ["step-000005-good.jsonl", "step-000005_good.jsonl"])
def test_a_copy_beside_kept_replies_is_neither_read_nor_deleted(name: str, tmp_path: Path) -> None:
    keep_replies(tmp_path, 5, [reply(1.0)])
    (tmp_path / "replies" / name).write_text("mine")
    assert [one["step"] for one in last_replies(tmp_path)] == [5]
    forget_replies(tmp_path, 4)
    assert [path.name for path in (tmp_path / "replies").iterdir()] == [name]


def test_stored_replies_are_chosen_like_kept_ones(tmp_path: Path) -> None:
    drawn = [reply(total, number) for number, total in enumerate((0.5, None, 1.0, 0.0))]
    drawn.append(reply(0.25, source="other"))
    write_trajectories(tmp_path / "trajectories.parquet", drawn)
    kept = examples(drawn, each=2)
    keep_replies(tmp_path, 3, kept)
    stored = stored_replies(tmp_path / "trajectories.parquet", each=2)
    assert [{"step": 3, **one} for one in stored] == last_replies(tmp_path)
    assert [one["reward"] for one in stored] == [0.25, 0.0, 1.0]
