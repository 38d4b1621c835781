"""Which function a filter of a data recipe is. To add one: write it, its section, and a line here.

A rule looks at one row. A corpus filter first takes a key of every row, then decides over all of them; keys
are small, so that millions fit in memory.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from vtune.curate import balance, boxes, duplicates, language, own, reasoning, traces, verifiable
from vtune.curate.item import Item, Selected

Rule = Callable[[Any, Item], str | None]
"""(section of the recipe, row) -> the reason to drop it, or None."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """A filter over all rows."""

    key: Callable[[Any, Item], Any]
    """(section, row) -> what the decision needs to know of it."""
    decide: Callable[[Any, Sequence[tuple[str, Any]], random.Random], Mapping[int, str]]
    """(section, (source, key) of each row in order, chance) -> index -> the reason to drop it."""


def _needs_benchmarks(
    spec: Any, entries: Sequence[tuple[str, Any]], chance: random.Random
) -> Mapping[int, str]:
    raise TypeError("what is in a benchmark depends on its data: ask `Benchmarks.contaminated`")


RULES: Mapping[type[Selected], Rule] = MappingProxyType(
    {
        reasoning.NoGuessing: reasoning.guessable,
        reasoning.AnswerSymbols: reasoning.has_symbols,
        reasoning.AnswerLength: reasoning.too_long,
        boxes.BoxesPerCategory: boxes.crowded,
        boxes.BoxShare: boxes.large,
        boxes.PlainLabels: boxes.complex_label,
        language.English: language.foreign,
        verifiable.Verifiable: verifiable.unverifiable,
        verifiable.MathVerifiable: verifiable.no_expression,
        traces.ToolRounds: traces.rounds_outside,
        traces.WholeTraces: traces.broken,
        own.Own: own.dropped,
    }
)

CORPORA: Mapping[type[Selected], Corpus] = MappingProxyType(
    {
        boxes.SinglesToMultis: Corpus(boxes.has_one_each, boxes.surplus),
        boxes.CategoryTail: Corpus(boxes.categories, boxes.in_the_tail),
        balance.Balance: Corpus(balance.group_of, balance.overfull),
        duplicates.Duplicates: Corpus(duplicates.duplicate_key, duplicates.repeated),
        duplicates.Contamination: Corpus(duplicates.benchmark_key, _needs_benchmarks),
    }
)

FOR_TRACES = frozenset(
    {traces.ToolRounds, traces.WholeTraces, duplicates.Duplicates, duplicates.Contamination, language.English}
)
"""Filters that can look at traces …"""
NOT_FOR_SAMPLES = frozenset({traces.ToolRounds, traces.WholeTraces})
"""… and those that can look at nothing else."""
