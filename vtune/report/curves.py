"""Which curves belong together: the table behind a run's charts and the order of its numbers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

REST = "everything else"


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart: one number by source, or several numbers of one source."""

    group: str
    title: str
    names: tuple[str, ...]
    """Names of numbers; `*` matches any text. Several names, or a `*`, share the chart."""
    unit: str = ""


CHARTS = (
    Chart("results", "reward", ("reward",)),
    Chart("results", "accuracy", ("accuracy",), "share"),
    Chart("results", "score of evaluations", ("score",)),
    Chart("looking", "faithful, of all", ("faithful_of_all",), "share"),
    Chart("looking", "faithful, of the correct", ("faithful_of_correct",), "share"),
    Chart("looking", "a call shows a target", ("evidence_rate",), "share"),
    Chart("looking", "tool calls", ("tool_calls",), "per trajectory"),
    Chart("looking", "without a tool", ("no_tool",), "share"),
    Chart("looking", "red flags", ("red_flags",), "calls per trajectory"),
    Chart("looking", "how calls ended", ("calls_*",), "calls"),
    Chart("looking", "tools", ("tool_*_calls", "tool_*_errors", "tool_*_empty"), "calls"),
    Chart("looking", "score of calls", ("tool_*_score",)),
    Chart("parts of the reward", "accuracy", ("reward_accuracy",)),
    Chart("parts of the reward", "format", ("reward_format",)),
    Chart("parts of the reward", "tool", ("reward_tool",)),
    Chart("parts of the reward", "consistency", ("reward_consistency",)),
    Chart("parts of the reward", "of your own", ("reward_*",)),
    Chart("parts of the reward", "unscored", ("unscored",), "share"),
    Chart("boxes", "IoU", ("iou",)),
    Chart("boxes", "IoU bands", ("iou@*",), "share"),
    Chart("boxes", "average precision", ("ap", "ap50", "ap75")),
    Chart("boxes", "IoU threshold", ("iou_threshold",)),
    Chart("replies", "length of replies", ("response_tokens",), "tokens"),
    Chart("replies", "cut short", ("truncated",), "share"),
    Chart("replies", "reflection", ("reflection_*",), "share"),
    Chart("optimisation", "loss", ("loss",)),
    Chart("optimisation", "entropy", ("entropy",), "nats per token"),
    Chart("optimisation", "KL", ("kl",)),
    Chart("optimisation", "mismatch of engine and trainer", ("mismatch*",)),
    Chart("optimisation", "clipped and truncated", ("clip_share", "truncated_share"), "share"),
    Chart("optimisation", "norm of gradients", ("grad_norm*",)),
    Chart("optimisation", "learning rate", ("learning_rate",)),
    Chart("optimisation", "groups of equal rewards", ("groups_*",)),
    Chart("credit transfer", "credit transfer", ("credit_*",)),
    Chart("time", "seconds of a step, by phase", ("seconds*",), "s"),
    Chart("time", "trained tokens", ("tokens_per_second*",), "per second"),
    Chart("time", "share of the GPUs' peak (MFU)", ("mfu",), "share"),
    Chart("time", "memory of the fullest process", ("memory_gib",), "GiB"),
    Chart("time", "waiting for tools and scores", ("idle_share",), "share"),
    Chart(REST, "*", ("*",)),
)
"""In page order. A number is drawn in the first chart that matches it."""


def charts_of(names: Iterable[str]) -> list[dict[str, Any]]:
    """The charts of a run, with the numbers that it has: `group`, `title`, `unit`, `names`, `family`.

    `family` marks a chart for several numbers of one source; a number that no chart names gets its own chart.
    """
    found: dict[Chart, list[str]] = {}
    for name in dict.fromkeys(names):
        found.setdefault(chart_of(name), []).append(name)
    charts: list[dict[str, Any]] = []
    for chart in CHARTS:
        mine = found.get(chart, [])
        if chart.group == REST:
            charts += [_described(chart, name, [name]) for name in mine]
        elif mine:
            charts.append(_described(chart, chart.title, mine))
    return charts


def chart_of(name: str) -> Chart:
    """The chart that a number is drawn in."""
    return next(one for one in CHARTS if any(fnmatchcase(name, known) for known in one.names))


def _described(chart: Chart, title: str, names: Sequence[str]) -> dict[str, Any]:
    family = chart.group != REST and (len(chart.names) > 1 or "*" in chart.names[0])
    return {"group": chart.group, "title": title, "unit": chart.unit, "names": list(names), "family": family}
