"""What a scorer promises."""

from collections.abc import Callable

from vtune.metrics.benchmarks import SCORERS, Mark
from vtune.runs.parts.checks.check import Broken, Check, tried


def check_scorer(name: str) -> list[Check]:
    """All right is 1, all wrong is 0, and what could not be scored has no score."""

    def score(right: float | None, wanted: float | None) -> Callable[[], str]:
        extra = {"category": "single", "cycle_category": "0", "l2-category": "one", "task": "one"}
        marks = [Mark(f"check/{n}", extra, right, unreadable=False, source="check") for n in range(4)]

        def run() -> str:
            found = SCORERS[name](marks).get("score")
            if found != wanted:
                raise Broken(f"`score` is {found}, not {wanted}")
            return f"`score` is {found}"

        return run

    return [
        tried("all right is 1", score(1.0, 1.0)),
        tried("all wrong is 0", score(0.0, 0.0)),
        tried("what is unscored has no score", score(None, None)),
    ]
