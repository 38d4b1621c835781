"""Scorers for benchmarks that sort their questions on more than one level."""

from collections.abc import Sequence

from vtune.metrics.benchmarks import SCORERS, Mark, Scores, extra_of, mean, mean_of_parts

MERGED = {"counting grid - blank grids": "counting grid", "counting grid - word grids": "counting grid"}
"""Tasks of VLMs Are Blind that count as one in the mean of tasks (lmms-eval)."""


def by_levels(marks: Sequence[Mark]) -> Scores:
    """`mean` over all, and of each `category` and `l2-category`; `tasks` where a category is `task/subtask`.

    Source: MME-RealWorld (`get_dimension_rating` of VLMEvalKit) and TreeBench.

    Raises:
        DataError: If a sample has no category.
    """
    found = mean(marks) | {
        "categories": _grouped(marks, [extra_of(mark, "category") for mark in marks]),
        "subcategories": _grouped(marks, [extra_of(mark, "l2-category") for mark in marks]),
    }
    tops = [extra_of(mark, "category").partition("/") for mark in marks]
    if any(slash for _, slash, _ in tops):
        found["tasks"] = _grouped(marks, [top for top, _, _ in tops])
    return found


def by_tasks(marks: Sequence[Mark]) -> Scores:
    """`mean` over all, of each `task`, and `task_mean`: over tasks, both counting grids as one.

    Papers report either number without saying which. lmms-eval averages over the tasks that have a right
    answer; here a task in which every answer is wrong counts as 0, so `task_mean` is lower then. If nothing
    of a task was scored, there is no `task_mean`, and `unscored_parts` names the task.

    Source: VLMs Are Blind in lmms-eval (`vlmsareblind_aggregate_by_task`) and VLMEvalKit.

    Raises:
        DataError: If a sample has no task.
    """
    names = [extra_of(mark, "task") for mark in marks]
    merged = _grouped(marks, [MERGED.get(name.lower(), name) for name in names])
    over = mean_of_parts({name: group.get("score") for name, group in merged.items()})
    if "score" in over:
        over = {"task_mean": over["score"]}
    return mean(marks) | over | {"tasks": _grouped(marks, names)}


def _grouped(marks: Sequence[Mark], names: Sequence[str]) -> dict[str, Scores]:
    """`mean` of the marks of each name."""
    return {
        name: mean([mark for mark, its in zip(marks, names, strict=True) if its == name])
        for name in sorted(set(names))
    }


SCORERS.add("levels", by_levels)
SCORERS.add("tasks", by_tasks)
