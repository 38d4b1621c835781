"""Replies that a model failed to judge: they are listed in a file, and the evaluation stops."""

import json
from collections.abc import Mapping
from pathlib import Path

from vtune.errors import RunFailed
from vtune.files.writing import write_atomically

UNJUDGED = "unjudged.jsonl"
"""In the folder of an evaluation: replies that no model has judged, and why."""
NAMED = 5
"""How many of them a message names."""

Key = tuple[str, int]
"""A sample's id, and the number of its rollout."""


def not_judged(
    folder: Path,
    left: Mapping[Key, str],
    total: int,
    *,
    why: str,
    model: str,
    what: str = "grade",
    unreadable: bool = False,
) -> RunFailed:
    """The error of an evaluation whose replies were not all judged; `unjudged.jsonl` has all their names.

    Args:
        folder: Of the evaluation.
        left: Replies without a verdict, and why.
        total: Replies that were to be judged.
        why: Which of the reasons is told.
        model: The key of the suite that names the model.
        what: What they lack.
        unreadable: Whether the model has answered about all of them, and nothing that can be read: it may
            well say the same again.
    """
    path = folder / UNJUDGED
    rows = ({"sample_id": key[0], "rollout": key[1], "why": one} for key, one in sorted(left.items()))
    write_atomically(path, "".join(json.dumps(row) + "\n" for row in rows))
    names = sorted({name for name, _ in left})
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    fix = f"check the model that `{model}` names, or raise its budget, then continue with --resume"
    if unreadable:
        least = enough(len(left), total)
        fix = (
            f"continue with another `{model}` (model, or `max_tokens` where it was cut) and --resume, which "
            "is asked about all replies (the same one about these alone, and it may say the same again); "
            f"or without a {what} for them, with --set reward.max_unscored={least:g} --resume"
        )
    return RunFailed(
        f"{len(left)} of {total} replies have no {what}: {', '.join(names[:NAMED])}{more} ({path} has all)",
        where=why,
        fix=f"{fix}: no rollout is drawn again, and what the present `{model}` has said of the other replies "
        f"is kept{_stays(folder)}",
    )


def _stays(folder: Path) -> str:
    """What a failure does not change, where a finished evaluation went on."""
    file = folder / "results.json"
    return f"; {file} is as it was" if file.is_file() else ""


def enough(left: int, total: int) -> float:
    """The least `reward.max_unscored`, in whole percent, by which so many of all may be left out."""
    percent = -(-100 * left // total)
    # 0.29 * 100 is 28.999999999999996, which is less than 29.
    return percent / 100 if left <= percent / 100 * total else (percent + 1) / 100


def all_judged(folder: Path) -> None:
    """Remove the list: what an earlier session listed has been judged."""
    (folder / UNJUDGED).unlink(missing_ok=True)


def check_silent(folder: Path, silent: Mapping[Key, str], total: int, *, what: str = "grade") -> None:
    """Stop if the judge of the suite's reward gave no reply.

    Args:
        folder: Of the evaluation.
        silent: Replies that it was asked about in vain, and why.
        total: Replies that there will be.
        what: What it was to give.

    Raises:
        RunFailed: If there is one.
    """
    if silent:
        first = next(iter(silent.values()))
        raise not_judged(folder, silent, total, why=first, model="reward.judge", what=what)
    all_judged(folder)
