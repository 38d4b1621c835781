"""The headline of trajectories: shares and means with intervals, at the first step and at the last."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from vtune.metrics.intervals import Estimate, mean, share
from vtune.reward.recipe import RIGHT

Facts = Sequence[Mapping[str, Any]]
"""Rows of an index."""


def headline(table: pa.Table) -> dict[str, Any]:
    """Right answers, faithful shares, reward and calls at the first kept step and at the last.

    The interval treats the rollouts of one sample as a cluster. Trajectories that could not be judged are
    left out of those numbers for which they have no value.

    Args:
        table: The table of an index, with the columns of `vtune.view.facts.FACTS`.

    Returns:
        `of`, which trajectories these are, and the reason if there are no numbers about looks; and `rows`:
        `name`, whether it is a `share`, `first` and `last`, each an estimate (`value`, `low`, `high`, `n`) or
        None; `first` is None if there is only one step.
    """
    names = [
        name
        for name in (
            *("step", "sample", "right", "faithful", "needs_look", "reward", "calls", "flags"),
            "statuses",
        )
        if table.num_rows
    ]
    steps = sorted(step for step in pc.unique(table["step"]).to_pylist() if step is not None) or [None]
    parts = {step: _rows(table.select(names), step) for step in {steps[0], steps[-1]} if names}
    last, alone = parts.get(steps[-1], []), len(steps) == 1
    first = [] if alone else parts.get(steps[0], [])
    rows = [
        {
            "name": name,
            "share": name not in MEANS,
            "first": measure(first) if first else None,
            "last": measure(last),
        }
        for name, measure in MEASURES.items()
    ]
    of = f"{len(last)} trajectories" if alone else f"step {steps[0]} → step {steps[-1]}"
    if last and not _lookers(last):
        of += ", whose questions need no look"
    elif not _looks_are_known(last):
        of += ", too few of whose looks were judged to say what is faithful"
    said = f"right: an accuracy from {RIGHT:g} on; faithful: a call earned what showing a target does"
    return {"of": f"{of}, 95 % intervals; {said}", "rows": [row for row in rows if row["last"] is not None]}


def _rows(table: pa.Table, step: int | None) -> list[dict[str, Any]]:
    column = table["step"]
    found: list[dict[str, Any]] = table.filter(
        pc.is_null(column) if step is None else pc.equal(column, step)
    ).to_pylist()
    return found


def _looks_are_known(rows: Facts) -> bool:
    """Whether enough looks were judged to report shares of them, by the rule of `vtune.metrics.by_source`.

    With a recipe that does not reward looks, no model is asked about them. The only known trajectories are
    then those without a call or with red flags, which are not faithful, whatever the other looks show.
    """
    users = [row for row in _lookers(rows) if row["calls"]]
    unknown = [row for row in users if row["faithful"] is None]
    unasked = any(row["reward"] is not None and " infra " not in (row["statuses"] or "") for row in unknown)
    return not unasked and 2 * len(unknown) <= len(users)


def _lookers(rows: Facts) -> Facts:
    """Rows whose question needs a look, or for which that is unknown."""
    return [row for row in rows if row["needs_look"] is not False]


def _right(rows: Facts) -> dict[str, Any] | None:
    return _share(rows, lambda row: row["right"])


def _faithful(rows: Facts) -> dict[str, Any] | None:
    """Share of all that are right, with a call that earned as much as a look at the target."""
    if not _looks_are_known(rows):
        return None
    known = [row for row in rows if row["right"] is not None]
    return _share(known, lambda row: None if row["faithful"] is None else row["right"] and row["faithful"])


def _faithful_of_right(rows: Facts) -> dict[str, Any] | None:
    if not _looks_are_known(rows):
        return None
    return _share([row for row in rows if row["right"]], lambda row: row["faithful"])


def _flagged(rows: Facts) -> dict[str, Any] | None:
    return _share(rows, lambda row: None if row["calls"] is None else bool(row["flags"]))


def _mean(name: str) -> Callable[[Facts], dict[str, Any] | None]:
    def measured(rows: Facts) -> dict[str, Any] | None:
        known = [row for row in rows if row[name] is not None]
        return _counted(mean([_cluster(row) for row in known], [row[name] for row in known]), len(known))

    return measured


MEASURES: Mapping[str, Callable[[Facts], dict[str, Any] | None]] = {
    "right": _right,
    "right and faithful, of all": _faithful,
    "faithful, of the right": _faithful_of_right,
    "reward": _mean("reward"),
    "tool calls": _mean("calls"),
    "with a red flag": _flagged,
}
"""Name -> how it is measured."""
MEANS = ("reward", "tool calls")
"""Those that are not shares."""


def _share(rows: Facts, of: Callable[[Mapping[str, Any]], bool | None]) -> dict[str, Any] | None:
    known = [(_cluster(row), value) for row in rows if (value := of(row)) is not None]
    if not known:
        return None
    return _counted(share([cluster for cluster, _ in known], [value for _, value in known]), len(known))


def _cluster(row: Mapping[str, Any]) -> str:
    return str(row["sample"])


def _counted(estimate: Estimate | None, n: int) -> dict[str, Any] | None:
    return None if estimate is None else asdict(estimate) | {"n": n}
