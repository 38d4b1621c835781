"""Benchmark scores, each by its published rule. A suite names its scorer.

To add one: write a function in its own file, like `attempted.py`, add it to SCORERS and to the table in
`vtune.parts`, and add a case to tests/metrics/test_benchmarks.py.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Annotated, Any

from pydantic import AfterValidator

from vtune.errors import DataError
from vtune.metrics.scores import cluster, interval
from vtune.registry import Parts, first_line
from vtune.verifiers.boxes import LabelledBox

Scores = dict[str, Any]
"""Name -> number, or a mapping of the same kind one level down. What could not be measured has no key."""

HRBENCH = {"fsp": "single", "fcp": "cross"}
"""Name of the score -> `category` in the data: one instance, several instances."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The result of one rollout."""

    sample_id: str
    extra: Mapping[str, Any]
    """The sample's `extra`, as its reader filled it in."""
    score: float | None
    """Score of its answer, in [0, 1]; None if it could not be scored."""
    unreadable: bool
    """Whether nothing that could be right or wrong was found in the reply; it scores 0."""
    source: str = ""
    """The sample's source."""
    cluster: str = ""
    """Rollouts with one cluster belong together (`vtune.schema.clusters`); empty: only the sample's own."""
    boxes: tuple[LabelledBox, ...] | None = None
    """The boxes that its answer lists, in pixels of the stored picture; None if it does not list boxes, or
    the sample has no annotated picture (`vtune.schema.annotated`)."""
    attempted: bool = True
    """Whether a judge found that it answers at all, right or wrong; true if no judge was asked."""
    waits: bool = False
    """Whether an official scorer still has to score it (`vtune scores`)."""


SCORERS: Parts[Callable[[Sequence[Mark]], Scores]] = Parts(
    "scorer", first_line, calls=("scorer(marks) -> Scores",)
)
"""Name in a suite -> scorer."""

ScorerName = Annotated[str, AfterValidator(SCORERS.known)]


def mean(marks: Sequence[Mark]) -> Scores:
    """The mean over all scored rollouts, with equal weights.

    Holds `score`; `intervals`, with that of `score` (see `vtune.metrics.scores`); `n`, the number of
    rollouts; `unreadable` and `unscored`, how many of them were; `clusters`, the number of independent
    questions in the mean. Unreadable rollouts count as wrong; unscored ones are left out of the mean and its
    `clusters`.
    """
    known = [mark for mark in marks if mark.score is not None]
    counts = {
        "n": len(marks),
        "clusters": len({cluster(mark) for mark in known}),
        "unreadable": sum(mark.unreadable for mark in marks),
        "unscored": len(marks) - len(known),
    }
    score = (
        {"score": fmean(mark.score or 0.0 for mark in known), "intervals": {"score": interval(marks)}}
        if known
        else {}
    )
    return score | counts


def by_category(marks: Sequence[Mark]) -> Scores:
    """`mean` over all rollouts (not a mean of means), and `categories`: the same for each `category`.

    Source: V* bench (its paper's table and `vstar_bench_eval.py`).

    Raises:
        DataError: If a sample has no category.
    """
    names = sorted({extra_of(mark, "category") for mark in marks})
    groups = {name: mean([m for m in marks if m.extra["category"] == name]) for name in names}
    return mean(marks) | {"categories": groups}


def by_source(marks: Sequence[Mark]) -> Scores:
    """The mean of the means of all sources, whatever their sizes: `score`. `sources` holds `mean` of each.

    If nothing of a source was scored, there is no `score`, and `unscored_parts` names the source.

    Source: the averages over benchmarks of Dong et al. 2026, table 1.
    """
    names = sorted({mark.source for mark in marks})
    groups = {name: mean([mark for mark in marks if mark.source == name]) for name in names}
    counts = {name: value for name, value in mean(marks).items() if name not in ("score", "intervals")}
    over = mean_of_parts({name: group.get("score") for name, group in groups.items()})
    if "score" in over:
        over["intervals"] = {"score": interval(marks, lambda mark: mark.source)}
    return over | counts | {"sources": groups}


def hrbench(marks: Sequence[Mark]) -> Scores:
    """Means over the rotations of what is right within each: `score` (all), `fsp` and `fcp`.

    `cycles` holds the three for each rotation. `fsp` and `fcp` are means over the rotations that have such
    questions; VLMEvalKit divides by all, which is the same on the whole data. A question counts four times,
    not only if all four answers are right. If nothing of a rotation was scored, the means that include it are
    missing, and `unscored_parts` names the rotation.

    Source: HR-Bench, `report_acc_hrbench` of VLMEvalKit.

    Raises:
        DataError: If a sample has no category or no rotation.
    """
    cycles: dict[str, dict[str, float | None]] = {}
    for name in sorted({_cycle(mark) for mark in marks}):
        inside = [mark for mark in marks if _cycle(mark) == name]
        parts = {key: _in_part(inside, key) for key in ("score", *HRBENCH)}
        cycles[name] = {key: mean(part).get("score") for key, part in parts.items() if part}
    kept = {name: value for name, value in mean(marks).items() if name not in ("score", "intervals")}
    scores: Scores = {}
    unscored: list[str] = []
    for key in ("score", *HRBENCH):
        over = mean_of_parts({name: row[key] for name, row in cycles.items() if key in row})
        lost = [name for name in over.get("unscored_parts", ()) if name not in unscored]
        # The rotation has other scores, so this is about one category only.
        unscored += lost if key == "score" else [f"{name} ({key})" for name in lost]
        if "score" in over:
            scores[key] = over["score"]
    if scores:
        scores["intervals"] = {key: interval(_in_part(marks, key), _cycle) for key in tuple(scores)}
    if unscored:
        scores["unscored_parts"] = unscored
    known = {
        name: {key: value for key, value in row.items() if value is not None} for name, row in cycles.items()
    }
    return scores | kept | {"cycles": known}


def mean_of_parts(parts: Mapping[str, float | None]) -> Scores:
    """The mean of the parts' means, as `score`, equally weighted.

    A mean over the remaining parts would be about other questions than it claims. So if a part has none,
    there is no `score`, and `unscored_parts` lists the parts without one.

    Args:
        parts: Name -> its mean; None if nothing of it was scored.
    """
    if unscored := [name for name, value in parts.items() if value is None]:
        return {"unscored_parts": unscored}
    known = [value for value in parts.values() if value is not None]
    return {"score": fmean(known)} if known else {}


SCORERS.add("mean", mean)
SCORERS.add("categories", by_category)
SCORERS.add("hrbench", hrbench)
SCORERS.add("sources", by_source)


def _in_part(marks: Sequence[Mark], key: str) -> list[Mark]:
    """The HR-Bench marks that a score is about."""
    return [mark for mark in marks if key == "score" or extra_of(mark, "category") == HRBENCH[key]]


def _cycle(mark: Mark) -> str:
    return extra_of(mark, "cycle_category")


def extra_of(mark: Mark, key: str) -> str:
    """The value of a sample's `extra` under a key.

    Raises:
        DataError: If there is none.
    """
    found = mark.extra.get(key)
    if not isinstance(found, str) or not found:
        raise DataError(
            f"it has no `{key}`, which the score is split by",
            where=f"sample {mark.sample_id!r}",
            fix=f"fill in `extra_info.{key}`, or score with `scorer: mean`",
        )
    return found
