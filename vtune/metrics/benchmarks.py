"""Benchmark scores, each by its published rule. A suite names its scorer.

To add one: write a function in a file of its own, as `attempted.py` has, add it to SCORERS and to the table
of `vtune.parts`, add a case to tests/metrics/test_benchmarks.py.
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
"""Name -> number, or one more level of that. What could not be measured has no key."""

HRBENCH = {"fsp": "single", "fcp": "cross"}
"""Name of the score -> `category` in the data: one instance, several instances."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What became of one rollout."""

    sample_id: str
    extra: Mapping[str, Any]
    """The sample's, as its reader filled it in."""
    score: float | None
    """Of its answer, in [0, 1]; None where nobody could score it."""
    unreadable: bool
    """Nothing that could be right or wrong was found in the reply; it scores 0."""
    source: str = ""
    """The sample's."""
    cluster: str = ""
    """What belongs together (`vtune.schema.clusters`); empty: the rollouts of the sample alone."""
    boxes: tuple[LabelledBox, ...] | None = None
    """What its answer lists, in pixels of the stored picture; None where that does not list boxes, or the
    sample has no annotated picture (`vtune.schema.annotated`)."""
    attempted: bool = True
    """Whether a judge found that it answers at all, right or wrong; true where none was asked for that."""
    waits: bool = False
    """An official scorer has still to score it (`vtune scores`)."""


SCORERS: Parts[Callable[[Sequence[Mark]], Scores]] = Parts(
    "scorer", first_line, calls=("scorer(marks) -> Scores",)
)
"""Name in a suite -> scorer."""

ScorerName = Annotated[str, AfterValidator(SCORERS.known)]


def mean(marks: Sequence[Mark]) -> Scores:
    """The mean over all rollouts that were scored, every one weighing the same.

    Holds `score`; `intervals`, with that of `score` (see `vtune.metrics.scores`); `n`, all rollouts;
    `unreadable` and `unscored`, how many of them were so; `clusters`, how many independent questions the mean
    is of. Unreadable rollouts are wrong; unscored ones are left out of the mean, and of its `clusters`.
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

    Where nothing was scored of a source, there is no `score`, and `unscored_parts` names the source.

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
    not only where all four answers are right. Where nothing was scored of a rotation, what that is part of
    has no mean, and `unscored_parts` names the rotation.

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
        # Of a rotation that has other scores it is one category.
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
    """The mean of the means of parts, as `score`: every part weighs the same.

    A mean over what is left would be about other questions than it says. So where a part has none, there is
    no `score`, and `unscored_parts` lists those without one.

    Args:
        parts: Name -> its mean; None where nothing of it was scored.
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
    """Of HR-Bench's marks those that a score is about."""
    return [mark for mark in marks if key == "score" or extra_of(mark, "category") == HRBENCH[key]]


def _cycle(mark: Mark) -> str:
    return extra_of(mark, "cycle_category")


def extra_of(mark: Mark, key: str) -> str:
    """What a sample's `extra` has under a key.

    Raises:
        DataError: If there is nothing.
    """
    found = mark.extra.get(key)
    if not isinstance(found, str) or not found:
        raise DataError(
            f"it has no `{key}`, which the score is split by",
            where=f"sample {mark.sample_id!r}",
            fix=f"fill in `extra_info.{key}`, or score with `scorer: mean`",
        )
    return found
