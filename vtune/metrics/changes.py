"""What changed in a run: where each number started, peaked and ended, as means over windows of steps."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean
from typing import Literal

from vtune.schema.source_names import ALL, EVAL

WINDOW = 10
"""Maximum length of a window in steps (ours)."""
PART = 4
"""A window is at most this fraction, 1/n, of a curve (ours)."""
CLEAR = 3.0
"""Number of standard errors from which a difference of two windows counts as a change (ours)."""

_RISING = {"reward", "accuracy", "evidence_rate", "tokens_per_second", "ap", "ap50", "ap75", "iou"}
_RISING |= {"tokens_per_second_per_gpu", "mfu"}
_RISING |= {"score", "fsp", "fcp", "faithful_of_correct", "faithful_of_all"}
_FALLING = {"red_flags", "unscored", "truncated", "loss", "leaked_placeholders", "unreadable", "idle_share"}

TELLING = (
    *("score", "reward", "accuracy", "faithful_of_all", "faithful_of_correct", "evidence_rate", "iou"),
    *(
        "red_flags",
        "unscored",
        "truncated",
        "tool_calls",
        "no_tool",
        "response_tokens",
        "entropy",
        "mismatch",
        "loss",
    ),
)
"""Numbers whose change says something about a run, most important first (ours)."""

Verdict = Literal["better", "worse", "fell back", "higher", "lower", "no clear change"]


def direction(name: str) -> int:
    """1 if more is better, -1 if less is better, 0 if neither."""
    if name in _RISING or name.startswith(("reward_", "iou@", "score_")):
        return 1
    return -1 if name in _FALLING or name.startswith("seconds") else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The change of one number of one source."""

    source: str
    name: str
    first: float
    """Mean of the first window."""
    last: float
    """Mean of the last window."""
    best: float | None
    """Mean of the best window; None if neither more nor less is better."""
    best_step: int | None
    """The last step of the best window."""
    verdict: Verdict


def changes(sources: Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]]) -> list[Change]:
    """The change of every curve of two steps or more.

    A difference of two windows counts as a change from `CLEAR` standard errors on. A curve's noise is
    estimated from the differences of neighbouring steps, so that a trend is not taken for noise.

    Args:
        sources: Source -> number -> `steps` and `values`, of equal length.
    """
    return [
        _change(source, name, curve["steps"], curve["values"])
        for source, curves in sources.items()
        for name, curve in curves.items()
        if len(curve["values"]) > 1
    ]


def telling(found: Sequence[Change]) -> list[Change]:
    """Clear changes of numbers that matter: those for the worse first, then by the number's importance.

    The row over all sources is left out if a source has the same change. The loss only matters in supervised
    training: a policy-gradient loss need not fall while the reward rises.
    """
    rewarded = {one.source for one in found if one.name == "reward"}
    order = ("worse", "fell back", "better", "higher", "lower")
    said = {(one.name, one.verdict) for one in found if one.source != ALL and not one.source.startswith(EVAL)}
    shown = [
        one
        for one in found
        if one.name in TELLING
        and one.verdict in order
        and not (one.source == ALL and (one.name, one.verdict) in said)
        and not (one.name == "loss" and one.source in rewarded)
    ]
    return sorted(shown, key=lambda one: (min(order.index(one.verdict), 3), TELLING.index(one.name)))


def _change(source: str, name: str, steps: Sequence[float], values: Sequence[float]) -> Change:
    width = max(1, min(WINDOW, len(values) // PART))
    first, last = fmean(values[:width]), fmean(values[-width:])
    windows = [fmean(values[at : at + width]) for at in range(len(values) - width + 1)]
    wanted = direction(name)
    # The last of equal windows: a number that stayed at 0 got worse when it left 0.
    best = max(range(len(windows)), key=lambda at: (wanted * windows[at], at)) if wanted else None
    bound = CLEAR * _noise(values) * math.sqrt(2 / width)
    return Change(
        source=source,
        name=name,
        first=first,
        last=last,
        best=None if best is None else windows[best],
        best_step=None if best is None else int(steps[best + width - 1]),
        verdict=_verdict(wanted, first, last, None if best is None else windows[best], bound),
    )


def _verdict(wanted: int, first: float, last: float, best: float | None, bound: float) -> Verdict:
    if best is not None and wanted * (best - last) > bound and wanted * (best - first) > bound:
        return "fell back"
    if abs(last - first) <= bound:
        return "no clear change"
    if wanted:
        return "better" if wanted * (last - first) > 0 else "worse"
    return "higher" if last > first else "lower"


def _noise(values: Sequence[float]) -> float:
    """The standard deviation of steps around their trend, estimated from their differences (von Neumann)."""
    steps = [(b - a) ** 2 for a, b in pairwise(values)]
    # With only two steps, trend and noise cannot be told apart.
    return math.sqrt(fmean(steps) / 2) if len(steps) > 1 else math.inf
