"""A policy's replies as a file for `scripted:FILE`: anyone can score them again, without a model."""

from pathlib import Path
from typing import Any

from vtune.files.writing import atomic_file
from vtune.rollout.script import Cut
from vtune.runs.evaluate.exports.rows import compact
from vtune.runs.evaluate.finished import Finished
from vtune.schema.trajectory import Trajectory


def export(finished: Finished, out: Path) -> dict[str, Any]:
    """Write `replies.jsonl`, one line per rollout, for `--model scripted:OUT/replies.jsonl`.

    A failed rollout has the turns it got to, or none: its conversation ends there again, unscored.
    """
    count = 0
    with atomic_file(out / "replies.jsonl") as partial, partial.open("w", encoding="utf-8") as stream:
        for trajectory in finished.trajectories():
            turns = [turn.content for turn in trajectory.messages if turn.role == "assistant"]
            line = {"id": trajectory.sample_id, "rollout": trajectory.rollout, "turns": turns}
            if turns and (cut := _cut(trajectory)) is not None:
                line["cut"] = cut
            stream.write(compact(line) + "\n")
            count += 1
    return {"files": ["replies.jsonl"], "rows": count, "left_out": 0, "pictures": 0}


def _cut(trajectory: Trajectory) -> Cut | None:
    """Whether its last turn was cut off, or a call's result had no room: scripts do not count tokens."""
    if trajectory.stop_reason == "context" and any(call.unseen for call in trajectory.calls):
        return "context"
    return "turn" if trajectory.stop_reason in ("context", "length") else None
