"""One sample at several steps and in several places: how a policy's looks change as it learns."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, zip_longest
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from vtune.runs.view.opened import Opened
from vtune.view.query import of_sample

MOST = 12
"""Films to suggest (ours)."""
LOOKED_AT = 1_000
"""Samples considered for them, those with the most frames (ours)."""
FRAMES = 512
"""Trajectories per sample, at most (ours)."""

COLUMNS = ("key", "sample", "step", "rollout", "right", "faithful", "reward", "calls")

Frame = dict[str, Any]
"""`place` (its number), and `COLUMNS` of a trajectory."""


def film(opened: Sequence[Opened], sample: str, among: Sequence[int] | None = None) -> list[Frame]:
    """Trajectories of a sample, in the order of places, steps and rollouts.

    Args:
        opened: All places.
        sample: Its id.
        among: Numbers of the places whose frames to use; None: all.
    """
    return _cut(
        {"place": number, **row}
        for number, one in enumerate(opened)
        if among is None or number in among
        for row in of_sample(one.index.table.select(COLUMNS), sample).to_pylist()
    )


def films(opened: Sequence[Opened], among: Sequence[int] | None = None) -> list[dict[str, Any]]:
    """The samples with the most frames; of these, those that a policy learnt to look at first, see `_learnt`.

    Args:
        opened: All places.
        among: Numbers of the places whose frames to use; None: all.

    Returns:
        `sample` and its `frames`, for each. A sample with a single step in a single place makes no film.
    """
    tables = [
        rows.select(COLUMNS).append_column("place", pa.array([number] * rows.num_rows))
        for number, one in enumerate(opened)
        if (among is None or number in among)
        and one.place.kind != "samples"
        and (rows := one.index.table).num_rows  # the table grows concurrently
    ]
    if not tables:
        return []
    table = pa.concat_tables(tables)
    # A moment is one step of a place; an evaluation has a single one.
    steps = pc.fill_null(table["step"], -1)
    moments = pc.add(pc.multiply(table["place"], 1_000_000_000), pc.cast(steps, pa.int64()))
    counted = table.append_column("moment", moments).group_by("sample")
    counts = counted.aggregate([("moment", "count_distinct")])
    several = counts.filter(pc.greater(counts["moment_count_distinct"], 1))
    order = pc.sort_indices(several, [("moment_count_distinct", "descending"), ("sample", "ascending")])
    names = several["sample"].take(order[:LOOKED_AT])
    frames_of = table.filter(pc.is_in(table["sample"], value_set=names.combine_chunks())).to_pylist()
    found: dict[str, list[Frame]] = {name: [] for name in names.to_pylist() if name is not None}
    for row in frames_of:
        found[row["sample"]].append(row)
    ranked = sorted(found.items(), key=lambda one: (-_learnt(in_order(one[1])), one[0]))
    return [{"sample": name, "frames": _cut(frames)} for name, frames in ranked[:MOST]]


def _learnt(frames: Sequence[Frame]) -> float:
    """How much more often later frames are faithful than the first ones, at their best; more if a call had
    missed before that.

    The last frames do not decide: a policy whose crops are blackened at the end looks as it did before.
    """
    moments = _moments(frames)
    part = max(1, len(moments) // 3)
    ends = range(part + 1, len(moments) + 1)
    shares = {end: _faithful(_flat(moments[max(part, end - part) : end])) for end in ends}
    best = max(ends, key=lambda end: shares[end], default=part)
    gain = shares.get(best, 0.0) - _faithful(_flat(moments[:part]))
    missed = any(one["calls"] and one["faithful"] is False for one in _flat(moments[: best - 1]))
    return gain + (0.5 if missed and gain > 0 else 0.0) + len(moments) / 1000


def _flat(moments: Sequence[Sequence[Frame]]) -> list[Frame]:
    return [frame for moment in moments for frame in moment]


def _faithful(frames: Sequence[Mapping[str, Any]]) -> float:
    known = [bool(one["faithful"] and one["right"]) for one in frames if one["faithful"] is not None]
    return sum(known) / len(known) if known else 0.0


def _cut(frames: Iterable[Frame]) -> list[Frame]:
    """Only the first rollouts of each moment: when one has many, the others keep their room."""
    turns = zip_longest(*_moments(in_order(frames)))
    return in_order([frame for turn in turns for frame in turn if frame is not None][:FRAMES])


def _moments(frames: Sequence[Frame]) -> list[list[Frame]]:
    """Frames grouped by place and step, in order."""
    return [list(of) for _, of in groupby(frames, lambda one: (one["place"], one["step"]))]


def in_order(frames: Iterable[Frame]) -> list[Frame]:
    """Frames sorted by place, step and rollout."""

    def rank(one: Frame) -> tuple[int, int, int]:
        return one["place"], -1 if one["step"] is None else one["step"], one["rollout"] or 0

    return sorted(frames, key=rank)
