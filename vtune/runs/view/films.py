"""One sample at several steps and in several places: how a policy's looks change as it learns."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, zip_longest
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from vtune.runs.view.opened import Opened
from vtune.view.query import of_sample

MOST = 12
"""Films that are suggested (ours)."""
LOOKED_AT = 1_000
"""Samples that are looked at for them, those with the most frames (ours)."""
FRAMES = 512
"""Trajectories of one sample, at most (ours)."""

COLUMNS = ("key", "sample", "step", "rollout", "right", "faithful", "reward", "calls")

Frame = dict[str, Any]
"""`place`, its number, and `COLUMNS` of a trajectory."""


def film(opened: Sequence[Opened], sample: str, among: Sequence[int] | None = None) -> list[Frame]:
    """Trajectories of a sample, in the order of places, steps and rollouts.

    Args:
        opened: All places.
        sample: Its id.
        among: Numbers of those whose frames are meant; all of them where it is None.
    """
    return _cut(
        {"place": number, **row}
        for number, one in enumerate(opened)
        if among is None or number in among
        for row in of_sample(one.index.table, sample).select(COLUMNS).to_pylist()
    )


def films(opened: Sequence[Opened], among: Sequence[int] | None = None) -> list[dict[str, Any]]:
    """Samples with the most frames, and of them first those that a policy learnt to look at, see `_learnt`.

    Args:
        opened: All places.
        among: Numbers of those whose frames are meant; all of them where it is None.

    Returns:
        `sample` and its `frames` of each. A sample that was drawn once, in one place, makes no film.
    """
    tables = [
        rows.select(COLUMNS).append_column("place", pa.array([number] * rows.num_rows))
        for number, one in enumerate(opened)
        if (among is None or number in among)
        and one.place.kind != "samples"
        and (rows := one.index.table).num_rows  # it grows beneath us
    ]
    if not tables:
        return []
    table = pa.concat_tables(tables)
    # A moment is a step of a place; evaluations have one alone.
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
    """How much more often frames are faithful than the first ones, where it is most; more, where a call had
    missed before.

    Not the last ones: a policy whose crops are blackened at the end looks where it looked before.
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
    """The first rollouts of every moment: many of one leave room for the others."""
    turns = zip_longest(*_moments(in_order(frames)))
    return in_order([frame for turn in turns for frame in turn if frame is not None][:FRAMES])


def _moments(frames: Sequence[Frame]) -> list[list[Frame]]:
    """Frames in order, by place and step."""
    return [list(of) for _, of in groupby(frames, lambda one: (one["place"], one["step"]))]


def in_order(frames: Iterable[Frame]) -> list[Frame]:
    """By place, step and rollout."""

    def rank(one: Frame) -> tuple[int, int, int]:
        return one["place"], -1 if one["step"] is None else one["step"], one["rollout"] or 0

    return sorted(frames, key=rank)
