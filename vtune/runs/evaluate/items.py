"""`items.jsonl` of an evaluation: what became of each question, for comparing two evaluations."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from vtune.errors import DataError
from vtune.files.json_text import parse_json
from vtune.files.reading import MAX_DOCUMENT, read_text
from vtune.files.writing import write_atomically
from vtune.metrics.benchmarks import Mark
from vtune.metrics.items import Item, items_of
from vtune.metrics.power import power
from vtune.metrics.repeated import repeated

ITEMS = "items.jsonl"
"""File in an evaluation's folder, one question per line."""

DIGITS = 7
"""Decimal places of a score: trajectories store float32, which has no more."""

RESTORE = "restore the file as the evaluation wrote it, or evaluate again"


def by_question(marks: Sequence[Mark], file: Path) -> dict[str, Any]:
    """Write the questions; return numbers over questions that a scorer does not give.

    Args:
        marks: One per rollout.
        file: `items.jsonl` of the evaluation.

    Returns:
        `repeated`, see `vtune.metrics.repeated`; `power`, the smallest detectable difference from another
        evaluation (None if nothing was scored), see `vtune.metrics.power`.
    """
    items = [replace(item, scores=tuple(map(_short, item.scores))) for item in items_of(marks)]
    lines = (json.dumps(asdict(item), allow_nan=False) + "\n" for item in items)
    write_atomically(file, "".join(lines), option=None)
    known = [(item.cluster, item.score) for item in items if item.score is not None]
    mean = sum(score for _, score in known) / len(known) if known else 0.0
    return {
        "repeated": repeated(items),
        "power": power(len({name for name, _ in known}), mean, answers=sum(len(item.known) for item in items))
        if known
        else None,
    }


def _short(score: float | None) -> float | None:
    return None if score is None else round(score, DIGITS)


def read_items(folder: Path) -> dict[str, Item]:
    """Id -> question of a finished evaluation; scores in older files have more digits and are rounded.

    Raises:
        DataError: If there is no such file, or one of its lines is not a question.
    """
    path = folder / ITEMS
    if not path.is_file():
        raise DataError(
            f"the evaluation in {folder} has no {ITEMS}",
            fix="it is older than this file: evaluate again, with another --out",
        )
    try:
        lines = read_text(path, limit=MAX_DOCUMENT).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the questions cannot be read: {error}", where=str(path), fix=RESTORE) from None
    found: dict[str, Item] = {}
    for number, line in enumerate(lines):
        item = _item(line, f"{path}, row {number}")
        if item.id in found:
            raise DataError(
                f"the question {item.id!r} appears twice", where=f"{path}, row {number}", fix=RESTORE
            )
        found[item.id] = item
    return found


def _item(line: str, where: str) -> Item:
    try:
        row = parse_json(line)
        scores = tuple(None if score is None else float(score) for score in row["scores"])
        category = row["category"]
        if not all(isinstance(row[key], str) for key in ("id", "source", "cluster")):
            raise TypeError("`id`, `source` and `cluster` are texts")
        if not (category is None or isinstance(category, str)):
            raise TypeError("`category` is a text or null")
        if not all(score is None or 0 <= score <= 1 for score in scores):
            raise ValueError("`scores` lie in [0, 1]")
    except (ValueError, TypeError, KeyError) as error:
        raise DataError(f"not a question with its scores: {error}", where=where, fix=RESTORE) from None
    return Item(
        id=row["id"],
        source=row["source"],
        category=category,
        cluster=row["cluster"],
        scores=tuple(map(_short, scores)),
    )
