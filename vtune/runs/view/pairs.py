"""Two models, or two checkpoints of one: which samples each answers right, and looks at."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from vtune.errors import DataError
from vtune.runs.view.opened import Opened

_SIDES = re.compile(r"(\d{1,9})(?::(\d{1,18}))?,(\d{1,9})(?::(\d{1,18}))?", re.ASCII)

HALF = 0.5
"""Share of a sample's rollouts from which it counts as right, or as looked at (ours)."""
LISTED = 100
"""Samples listed per kind, at most (ours)."""

COLUMNS = ("key", "sample", "source", "step", "rollout", "right", "faithful", "answer", "question")

KINDS = {
    "gained": ((False, None), (True, None)),
    "lost": ((True, None), (False, None)),
    "found": ((True, False), (True, True)),
    "guessed": ((True, True), (True, False)),
}
"""Name -> (right, faithful) on the first and on the second side; None: any value."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of two sides of a comparison: a place, and a step of it if it has several."""

    number: int
    step: int | None

    def __str__(self) -> str:
        return str(self.number) if self.step is None else f"{self.number}:{self.step}"


def sides_of(text: str) -> tuple[Side, Side]:
    """The two sides in an address, such as `0,1` or `0:4,0:99`.

    Raises:
        DataError: If it does not name two sides.
    """
    found = _SIDES.fullmatch(text)
    if found is None:
        raise DataError("these are not two sides", fix="write PLACE,PLACE or PLACE:STEP,PLACE:STEP")
    one, first, two, second = found.groups()
    return Side(int(one), int(first) if first else None), Side(int(two), int(second) if second else None)


def compared(opened: Sequence[Opened], first: Side, second: Side) -> dict[str, Any]:
    """How two sides answer the samples that both have.

    A sample with several rollouts counts as right if half of them are. Samples without a score on either
    side are left out.

    Returns:
        `samples`, how many both have; `right`: counts of `both`, `first`, `second`, `neither`; `accuracy`
        of each side on them (None if there are none); and `gained`, `lost`, `found` (right on both, looked
        at only on the second) and `guessed` (the reverse): `count`, and `rows` of `sample`, `source`,
        `question`, and `first` and `second` with `key` and `answer`.
        and `first` and `second` with `key` and `answer`.

    Raises:
        DataError: If there is no such place.
    """
    ours, theirs = (_by_sample(opened, side) for side in (first, second))
    shared = [name for name in ours if name in theirs]
    rows = [(name, ours[name], theirs[name]) for name in shared]
    counts = {
        name: sum((one["right"], two["right"]) == wanted for _, one, two in rows)
        for name, wanted in {
            "both": (True, True),
            "first": (True, False),
            "second": (False, True),
            "neither": (False, False),
        }.items()
    }
    found: dict[str, Any] = {
        "samples": len(rows),
        "right": counts,
        "accuracy": [
            fmean(side[name]["share"] for name in shared) if shared else None for side in (ours, theirs)
        ],
    }
    for kind, (before, after) in KINDS.items():
        those = [row for row in rows if _is(row[1], before) and _is(row[2], after)]
        found[kind] = {"count": len(those), "rows": [_row(*row) for row in those[:LISTED]]}
    return found


def suggested(opened: Sequence[Opened], among: Sequence[int] | None = None) -> list[tuple[Side, Side]]:
    """Pairs that a reader may want to compare, with samples that both sides have scored.

    An evaluation is paired with the earlier one that shares the most samples with it, the closest if several
    do; a run's first kept step is paired with its last.

    Args:
        opened: All places.
        among: Numbers of the places to use; None: all.
    """
    asked = range(len(opened)) if among is None else dict.fromkeys(among)
    meant = [number for number in asked if 0 <= number < len(opened)]
    evaluations = [number for number in meant if opened[number].place.kind == "evaluation"]
    scored = [_scored(opened[number].index.table) for number in evaluations]
    found = [(Side(evaluations[one], None), Side(evaluations[two], None)) for one, two in _most_alike(scored)]
    for number in meant:
        table = opened[number].index.table
        steps = pc.drop_null(pc.unique(table["step"]))
        if len(steps) > 1:
            ends = [pc.min(steps).as_py(), pc.max(steps).as_py()]
            first, last = (_scored(table.filter(pc.equal(table["step"], step))) for step in ends)
            if pc.any(pc.is_in(first, value_set=last)).as_py():
                found.append((Side(number, ends[0]), Side(number, ends[1])))
    return found


def _scored(table: pa.Table) -> pa.Array:
    """Ids of the samples that have a score."""
    return pc.unique(table["sample"].filter(pc.is_valid(table["right"])))


def _most_alike(scored: Sequence[pa.Array]) -> list[tuple[int, int]]:
    """For each but the first, the earlier one that shares the most samples with it, if any does."""
    found: list[tuple[int, int]] = []
    if len(scored) < 2:
        return found
    names = pa.concat_arrays(scored).dictionary_encode()
    sample = names.indices.to_numpy()
    place = np.repeat(np.arange(len(scored)), [len(one) for one in scored])
    for second in range(1, len(scored)):
        has = np.zeros(len(names.dictionary), bool)
        has[sample[place == second]] = True
        shared = np.bincount(place[has[sample]], minlength=len(scored))[:second]
        first = second - 1 - int(np.argmax(shared[::-1]))
        if shared[first]:
            found.append((first, second))
    return found


def _by_sample(opened: Sequence[Opened], side: Side) -> dict[str, dict[str, Any]]:
    """Sample id -> what one side did with it, in the order of its file."""
    if not 0 <= side.number < len(opened):
        raise DataError(f"there is no place {side.number}", fix="open the first page again")
    table: pa.Table = opened[side.number].index.table.select(COLUMNS)
    if side.step is not None:
        table = table.filter(pc.equal(table["step"], side.step))
    table = table.filter(pc.is_valid(table["right"]))
    drawn: dict[str, list[Mapping[str, Any]]] = {}
    for row in table.to_pylist():
        drawn.setdefault(row["sample"], []).append(row)
    return {sample: _summary(rows) for sample, rows in drawn.items()}


def _summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    share = fmean(row["right"] for row in rows)
    looks = [row["faithful"] for row in rows if row["faithful"] is not None]
    right = share >= HALF
    # Show a rollout whose outcome is the one that the sample counts as.
    shown = next(row for row in rows if row["right"] == right) if share not in (0, 1) else rows[0]
    return {
        "share": share,
        "right": right,
        "faithful": fmean(looks) >= HALF if looks else None,
        **{name: shown[name] for name in ("key", "answer", "source", "question")},
    }


def _is(one: Mapping[str, Any], wanted: tuple[bool, bool | None]) -> bool:
    right, faithful = wanted
    return one["right"] == right and (faithful is None or one["faithful"] == faithful)


def _row(sample: str, one: Mapping[str, Any], two: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "sample": sample,
        "source": two["source"],
        "question": two["question"],
        **{
            name: {"key": of["key"], "answer": of["answer"]} for name, of in (("first", one), ("second", two))
        },
    }
