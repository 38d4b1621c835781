"""What a policy wrote, as `scripted:FILE` reads it: to be scored again by anyone, without a model."""

from pathlib import Path
from typing import Any

from vtune.files.writing import atomic_file
from vtune.runs.evaluate.exports.rows import compact
from vtune.runs.evaluate.finished import Finished


def export(finished: Finished, out: Path) -> dict[str, Any]:
    """Write `replies.jsonl`, a line per rollout, for `--model scripted:OUT/replies.jsonl`.

    One that failed has the turns that it came to, or none: there its conversation ends again, unscored.
    """
    count = 0
    with atomic_file(out / "replies.jsonl") as partial, partial.open("w", encoding="utf-8") as stream:
        for trajectory in finished.trajectories():
            turns = [turn.content for turn in trajectory.messages if turn.role == "assistant"]
            line = {"id": trajectory.sample_id, "rollout": trajectory.rollout, "turns": turns}
            stream.write(compact(line) + "\n")
            count += 1
    return {"files": ["replies.jsonl"], "rows": count, "left_out": 0, "pictures": 0}
