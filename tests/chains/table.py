"""A table of the rewards that an obedient policy earns per source in every chain, with the shipped recipes.

    python -m tests.chains.table

runs the chain tests and prints their results, and how many combinations the property tests covered.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from vtune.schema.trajectory import Trajectory

EARNED, COMBINATIONS = "earned", "combinations"
"""Names of the properties that tests record."""
PARTS = ("accuracy", "format", "tool", "total")

Record = Any
"""pytest's `record_property`."""


def record_earned(record: Record, recipe: str, trajectories: Iterable[Trajectory]) -> None:
    """Record what the trajectories of a recipe's run have earned, by source."""
    rewards = defaultdict(list)
    for found in trajectories:
        assert found.reward is not None
        rewards[found.source].append(found.reward)
    for source, given in sorted(rewards.items()):
        record(EARNED, (recipe, source, [_mean([getattr(one, part) for one in given]) for part in PARTS]))


def record_combinations(record: Record, counts: Mapping[str, int]) -> None:
    """Record how many combinations of a kind a property test covered."""
    record(COMBINATIONS, dict(counts))


def _mean(scores: list[float | None]) -> float | None:
    known = [score for score in scores if score is not None]
    return fmean(known) if len(known) == len(scores) else None


class Notes:
    """A pytest plugin that collects what tests record."""

    def __init__(self) -> None:
        self.earned: dict[tuple[str, str], list[float | None]] = {}
        self.combinations: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Called after each phase of a test."""
        for name, value in report.user_properties if report.when == "call" else ():
            if name == EARNED:
                recipe, source, scores = value  # type: ignore[misc]
                self.earned[recipe, source] = scores
            elif name == COMBINATIONS:
                self.combinations.update(value)  # type: ignore[arg-type]

    def lines(self) -> list[str]:
        """The table in Markdown, and the counts. A reward part that was not scored is a dash."""
        found = ["| recipe | source | " + " | ".join(PARTS) + " |", "|---|---|" + "---|" * len(PARTS)]
        for (recipe, source), scores in sorted(self.earned.items()):
            said = " | ".join("–" if score is None else f"{score:.2f}" for score in scores)
            found.append(f"| {recipe} | {source} | {said} |")
        return [*found, "", *(f"{name}: {count}" for name, count in sorted(self.combinations.items()))]


def main() -> int:
    """Run the chains and print the table; the exit status is pytest's."""
    notes = Notes()
    status = pytest.main(["-q", "-p", "no:cacheprovider", str(Path(__file__).parent)], plugins=[notes])
    print("\n".join(notes.lines()))
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
