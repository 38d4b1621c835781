"""What each tightening of the IoU threshold cost a run, and whether it recovered (V-Triune §3.2.1)."""

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from vtune.metrics.log import MetricsLine
from vtune.schema.source_names import ALL

WINDOW = 5
"""Number of steps averaged for the reward before and after a tightening, and at the end of a stage (ours)."""


def tightenings(lines: Sequence[MetricsLine]) -> list[dict[str, Any]]:
    """Each rise of `iou_threshold` in a run, with the accuracy part of the reward around it.

    Args:
        lines: Lines of one run.

    Returns:
        One entry per rise: `step` (the first under the new threshold), `old`, `new`, and `sources`: source ->
        `before` and `after`, the means of the `WINDOW` steps on either side, and `end`, the mean of the last
        ones before the next change or the end of the run. Only sources whose boxes are judged; None for a
        window without samples.
    """
    thresholds = {
        line.step: line.values["iou_threshold"]
        for line in lines
        if line.source == ALL and "iou_threshold" in line.values
    }
    rewards: dict[str, dict[int, float]] = defaultdict(dict)
    for line in lines:
        if line.source != ALL and "iou" in line.values and "reward_accuracy" in line.values:
            rewards[line.source][line.step] = line.values["reward_accuracy"]
    steps = sorted(thresholds)
    changes = [
        number
        for number in range(1, len(steps))
        if thresholds[steps[number]] != thresholds[steps[number - 1]]
    ]
    bounds = [0, *changes, len(steps)]
    found = []
    for place, number in enumerate(changes, start=1):
        old, new = thresholds[steps[number - 1]], thresholds[steps[number]]
        if new < old:
            continue
        # A window does not extend into another stage.
        before = steps[max(bounds[place - 1], number - WINDOW) : number]
        stage = steps[number : bounds[place + 1]]
        found.append(
            {
                "step": steps[number],
                "old": old,
                "new": new,
                "sources": {
                    source: {
                        "before": _mean(curve, before),
                        "after": _mean(curve, stage[:WINDOW]),
                        "end": _mean(curve, stage[-WINDOW:]),
                    }
                    for source, curve in rewards.items()
                },
            }
        )
    return found


def _mean(curve: dict[int, float], steps: Sequence[int]) -> float | None:
    values = [curve[step] for step in steps if step in curve]
    return fmean(values) if values else None
