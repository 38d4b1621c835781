"""The MEGA-Bench score: the mean over all tasks, and over the tasks of each field."""

from collections.abc import Sequence
from statistics import fmean

from vtune.metrics.benchmarks import SCORERS, Mark, Scores, extra_of
from vtune.metrics.ocrbench import mean_once_scored


def megabench(marks: Sequence[Mark]) -> Scores:
    """`score`, the mean over tasks of their questions' means; `fields`, the same for each field.

    So a field weighs as much as it has tasks; `tasks` is their number. A task that waits for the official
    scorer has no mean; then its field and the whole have none either.

    Source: `macro_mean_score` of MEGA-Bench's evaluator; V-Triune, table 2.

    Raises:
        DataError: If a sample has no task or no field.
    """
    groups: dict[str, dict[str, list[Mark]]] = {}
    for mark in marks:
        groups.setdefault(extra_of(mark, "category"), {}).setdefault(extra_of(mark, "task"), []).append(mark)
    fields = {name: _field(list(tasks.values())) for name, tasks in sorted(groups.items())}
    every = [task for tasks in groups.values() for task in tasks.values()]
    counts = {
        key: value for key, value in mean_once_scored(marks).items() if key not in ("score", "intervals")
    }
    return counts | _field(every) | {"fields": fields}


def _field(tasks: Sequence[Sequence[Mark]]) -> Scores:
    means = [found["score"] for task in tasks if "score" in (found := mean_once_scored(task))]
    return {"tasks": len(tasks)} | ({"score": fmean(means)} if len(means) == len(tasks) else {})


SCORERS.add("mega_bench", megabench)
