"""Replies that a model failed to judge: they are listed in a file, and the evaluation stops."""

import json
from collections.abc import Mapping
from pathlib import Path

from vtune.errors import RunFailed
from vtune.files.writing import write_atomically

UNJUDGED = "unjudged.jsonl"
"""File in an evaluation's folder: replies that no model judged, and why."""
NAMED = 5
"""Maximum number of questions that a message names."""

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
    """The error for an evaluation with unjudged replies; lists all of them in `unjudged.jsonl`.

    Args:
        folder: The evaluation's folder.
        left: Replies without a verdict, and why.
        total: Number of replies that were to be judged.
        why: The reason to report.
        model: The suite's key that names the model.
        what: What they lack.
        unreadable: Whether the model replied about all of them, but unreadably, and so may well do the same
            again.
    """
    path = folder / UNJUDGED
    rows = ({"sample_id": key[0], "rollout": key[1], "why": one} for key, one in sorted(left.items()))
    write_atomically(path, "".join(json.dumps(row) + "\n" for row in rows), option=None)
    names = sorted({name for name, _ in left})
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    fix = f"check the model that `{model}` names, or raise its budget, then continue with --resume"
    if unreadable:
        least = enough(len(left), total)
        fix = (
            f"continue with --resume and another `{model}` (model, or `max_tokens` where it was cut), "
            "which is asked about all replies (the same one is asked about these alone, and may say "
            f"the same again); or accept them without a {what}: --set reward.max_unscored={least:g} "
            "--resume"
        )
    return RunFailed(
        f"{len(left)} of {total} replies have no {what}: {', '.join(names[:NAMED])}{more}",
        where=why,
        fix=f"{path} lists all; {fix}: no rollout is generated again, and what the present `{model}` has "
        f"said of the other replies is kept{_stays(folder)}",
    )


def _stays(folder: Path) -> str:
    """A note that the results are unchanged, if a finished evaluation was resumed."""
    file = folder / "results.json"
    return f"; {file} is as it was" if file.is_file() else ""


def enough(left: int, total: int) -> float:
    """The smallest `reward.max_unscored`, in whole percent, that allows `left` of `total` to be left out."""
    percent = -(-100 * left // total)
    # 0.29 * 100 is 28.999999999999996, which is less than 29.
    return percent / 100 if left <= percent / 100 * total else (percent + 1) / 100


def all_judged(folder: Path) -> None:
    """Remove the list, as everything listed by an earlier session has been judged."""
    (folder / UNJUDGED).unlink(missing_ok=True)


def check_silent(folder: Path, silent: Mapping[Key, str], total: int, *, what: str = "grade") -> None:
    """Stop if the judge of the suite's reward gave no reply.

    Args:
        folder: The evaluation's folder.
        silent: Replies that it was asked about without an answer, and why.
        total: Total number of replies.
        what: What it should have given.

    Raises:
        RunFailed: If there is one.
    """
    if silent:
        first = next(iter(silent.values()))
        raise not_judged(folder, silent, total, why=first, model="reward.judge", what=what)
    all_judged(folder)
