"""Rows of `metrics.jsonl` for an evaluation during training: one per suite, and one per source of it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vtune.metrics.by_source import Rows, by_source
from vtune.metrics.faithfulness import Row, faithfulness
from vtune.metrics.log import MetricsLine
from vtune.schema.source_names import ALL, EVAL
from vtune.schema.trajectory import Trajectory

_COUNTS = ("n", "clusters", "unreadable", "unscored", "boxes", "not_attempted")
"""A scorer's counts: the rows already have them as `trajectories`, shares and means."""

_LOOKS = (
    *("faithful_of_correct", "faithful_by_chance", "faithful_of_all"),
    *("unfaithful_of_correct", "no_tool_of_correct"),
)


def row_name(suite: str, source: str = ALL) -> str:
    """The `source` of a line in `metrics.jsonl`: `eval/<suite>/<source>`, or `eval/<suite>/all`."""
    return f"{EVAL}{suite}/{source}"


def evaluated(
    suite: str,
    trajectories: Sequence[Trajectory],
    scores: Mapping[str, Any],
    audited: Sequence[Row],
    *,
    evidence_score: float,
    max_unaudited: float,
    seed: int,
) -> Rows:
    """The rows of one suite, the row over all sources last: once that is written, the others are, too.

    Each row holds what `by_source` does: accuracy, response length, reflection, overlap of boxes. The last
    one also holds

    - `score`, the suite's own metric, `score_<category>` and the scorer's other breakdowns; a number whose
      name is already taken in the row becomes `score_<name>`: AP50 of single replies is `ap50`, that of
      COCO's set `score_ap50`;
    - if looks were audited by boxes, `faithful_of_correct`, `faithful_by_chance`, `faithful_of_all`,
      `unfaithful_of_correct` and `no_tool_of_correct` (see `vtune.metrics.faithfulness`).

    Args:
        suite: Its name.
        trajectories: Scored trajectories.
        scores: The suite's scores of them.
        audited: Trajectories whose samples have boxes; empty if looks were not audited.
        evidence_score: See `by_source`.
        max_unaudited: See `faithfulness`.
        seed: Seed of its bootstrap.
    """
    found = by_source(trajectories, evidence_score=evidence_score)
    overall = found.pop(ALL, {})
    overall |= {f"score_{name}" if name in overall else name: one for name, one in _scores(scores).items()}
    if audited:
        looks = faithfulness(audited, seed=seed, max_unaudited=max_unaudited)
        shares = {name: getattr(looks, name) for name in _LOOKS}
        overall |= {name: share.value for name, share in shares.items() if share is not None}
    return {row_name(suite, source): row for source, row in found.items()} | {row_name(suite): overall}


def _scores(scores: Mapping[str, Any]) -> dict[str, float]:
    """A scorer's numbers and the score of each category, as one row."""
    row = {
        name: float(value)
        for name, value in scores.items()
        if name not in _COUNTS and isinstance(value, int | float) and not isinstance(value, bool)
    }
    categories = scores.get("categories", {})
    # Built-in scorers give several numbers per category; a custom one may give only the score.
    parts = {name: one.get("score") if isinstance(one, Mapping) else one for name, one in categories.items()}
    return row | {f"score_{name}": one for name, one in parts.items() if isinstance(one, int | float)}


def curve_of(lines: Iterable[MetricsLine], suite: str, metric: str) -> dict[int, float]:
    """Step -> value of a suite's metric, for steps at which it was measured."""
    name = row_name(suite)
    return {line.step: line.values[metric] for line in lines if line.source == name and metric in line.values}


def finished_suites(lines: Iterable[MetricsLine], step: int) -> frozenset[str]:
    """The suites whose evaluation after `step` steps is complete."""
    names = [
        line.source.removeprefix(EVAL) for line in lines if line.step == step and line.source.startswith(EVAL)
    ]
    # A source's name may contain a slash, a suite's never does.
    return frozenset(suite for suite, _, source in (name.partition("/") for name in names) if source == ALL)
