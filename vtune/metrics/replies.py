"""What the text of replies alone shows: reflection, leaked placeholders, and a few replies to read."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from vtune.errors import DataError
from vtune.files.json_text import parse_json
from vtune.files.reading import MAX_DOCUMENT, read_text
from vtune.files.writing import write_atomically
from vtune.models.families import placeholders
from vtune.schema.message import IMAGE
from vtune.schema.parquet import scan_columns
from vtune.schema.trajectory import Trajectory

T = TypeVar("T")

REFLECTIVE = (
    "re-check",
    "re-evaluate",
    "re-examine",
    "re-think",
    "recheck",
    "reevaluate",
    "reexamine",
    "rethink",
    "reevaluation",
    "check again",
    "think again",
    "try again",
    "verify",
    "wait",
    "yet",
)
"""The 15 words of V-Triune's appendix H."""

_REFLECTIVE = re.compile("|".join(map(re.escape, REFLECTIVE)))


def reflects(reply: str) -> bool:
    """Whether a reply contains a reflective word, in any case, even inside another word (*yet* in *yeti*).

    Source: V-Triune, appendix H and eq. 4, which calls it a rough proxy; matching plain substrings follows
    its code.
    """
    return _REFLECTIVE.search(reply.lower()) is not None


def leaks(reply: str) -> bool:
    """Whether a reply contains a picture placeholder as text, which only prompts may (V-Triune, appendix B).

    The tokens themselves are never sampled, but a policy can still spell their names.
    """
    return any(word in reply for word in (IMAGE, *placeholders()))


def examples(trajectories: Sequence[Trajectory], *, each: int) -> list[Trajectory]:
    """Replies worth reading for every source, spread evenly from its worst to its best reward.

    Unscored ones come last, if there are too few scored ones.

    Args:
        trajectories: Trajectories of one step.
        each: Maximum number per source.
    """
    found = []
    for source in sorted({t.source for t in trajectories}):
        # The order of ties must not depend on which was sampled first.
        group = sorted((t for t in trajectories if t.source == source), key=_rank)
        scored = sum(not _rank(t)[0] for t in group)
        found += _spread(group, scored, each)
    return found


def _rank(trajectory: Trajectory) -> tuple[bool, float, str, int, int]:
    total = trajectory.reward.total if trajectory.reward is not None else None
    return (total is None, total or 0.0, trajectory.sample_id, trajectory.group, trajectory.rollout)


def keep_replies(run: Path, step: int, shown: Sequence[Trajectory]) -> None:
    """Write a step's replies to the run's `replies/`, one JSON object per line, replacing old ones."""
    lines = [json.dumps(_entry(one), allow_nan=False) + "\n" for one in shown]
    write_atomically(run / "replies" / f"step-{step:06d}.jsonl", "".join(lines), option=None)


def forget_replies(run: Path, first_step: int) -> None:
    """Remove the replies kept for this step and later ones, which a resumed run will generate again."""
    for step, path in _files(run):
        if step >= first_step:
            path.unlink()


def _files(run: Path) -> list[tuple[int, Path]]:
    """Reply files with their steps, oldest first; other files there belong to the user and are ignored."""
    found = [(re.fullmatch(r"step-(\d{6,})", path.stem), path) for path in (run / "replies").glob("*.jsonl")]
    return sorted((int(name[1]), path) for name, path in found if name is not None)


def last_replies(run: Path) -> list[dict[str, Any]]:
    """The replies that were kept last; empty if the run kept none.

    Returns:
        For each: `step`, `source`, `sample_id`, `rollout`, `reward` (None = unscored), `accuracy`, `parts`,
        `why`, `stop_reason`, `tokens` (sampled) and `reply`.

    Raises:
        DataError: If the file cannot be read.
    """
    kept = _files(run)
    if not kept:
        return []
    step, path = kept[-1]
    try:
        lines = read_text(path, limit=MAX_DOCUMENT).split("\n")[:-1]
        return [{"step": step, **parse_json(line)} for line in lines]
    except (OSError, ValueError, TypeError) as error:
        what = f"kept replies cannot be read: {error}"
        raise DataError(what, where=str(path), fix="remove the file") from None


def stored_replies(file: Path, *, each: int) -> list[dict[str, Any]]:
    """Replies from a trajectory file, chosen as in `examples`; no picture is read.

    Returns:
        For each, what `last_replies` returns, without `step`.

    Raises:
        DataError: If the file cannot be read.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for batch in scan_columns(file, _STORED):
        for row in batch.to_pylist():
            found.setdefault(row["data_source"], []).append(_stored(row))
    chosen: list[dict[str, Any]] = []
    for source in sorted(found):
        scored = sum(one["reward"] is not None for one in found[source])
        chosen += _spread(sorted(found[source], key=_worst), scored, each)
    return chosen


_STORED = (
    *("sample_id", "data_source", "group", "rollout", "messages.list.element.role"),
    *("messages.list.element.content", "loss_mask", "stop_reason", "reward"),
)


def _stored(row: Mapping[str, Any]) -> dict[str, Any]:
    reward = row["reward"] or {}
    said = [one["content"] or "" for one in row["messages"] or () if one["role"] == "assistant"]
    return {
        "source": row["data_source"],
        "sample_id": row["sample_id"],
        "rollout": row["rollout"],
        "reward": reward.get("total"),
        "accuracy": reward.get("accuracy"),
        "parts": dict(reward.get("parts") or ()),
        "why": reward.get("why") or "",
        "stop_reason": row["stop_reason"],
        "tokens": sum(row["loss_mask"] or ()),
        "reply": "\n".join(said),
    }


def _worst(entry: Mapping[str, Any]) -> tuple[bool, float, str, int]:
    total = entry["reward"]
    return total is None, total or 0.0, entry["sample_id"], entry["rollout"] or 0


def _spread(ranked: Sequence[T], scored: int, each: int) -> list[T]:
    """`each` items of a sequence, spread evenly over its first, scored part, including both ends.

    An unscored item would take the place of the best, so it is only used if there are too few scored ones.
    """
    count = min(each, scored)
    places = {round(number * (scored - 1) / max(count - 1, 1)) for number in range(count)}
    return [*(ranked[place] for place in sorted(places)), *ranked[scored : scored + each - count]]


def _entry(trajectory: Trajectory) -> dict[str, Any]:
    reward = trajectory.reward
    return {
        "source": trajectory.source,
        "sample_id": trajectory.sample_id,
        "rollout": trajectory.rollout,
        "reward": reward.total if reward else None,
        "accuracy": reward.accuracy if reward else None,
        "parts": dict(reward.parts) if reward else {},
        "why": reward.why if reward else "",
        "stop_reason": trajectory.stop_reason,
        "tokens": sum(trajectory.loss_mask),
        "reply": trajectory.reply,
    }
