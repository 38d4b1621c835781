"""Passes rows through the filters: one look at a time, and the questions that models answer."""

import asyncio
import hashlib
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import index, itemgetter
from pathlib import Path
from typing import Any, SupportsIndex

from vtune.curate.filters import FILTERS, Like, no_reason
from vtune.curate.item import Selected
from vtune.curate.judging import ExternalKnowledge, LabelCheck
from vtune.errors import RunFailed
from vtune.report.progress import Steps
from vtune.runs.curate.difficulty import measure_all
from vtune.runs.curate.funnel import Ledger
from vtune.runs.curate.labels import PeopleLabels, ask_people
from vtune.runs.curate.pass_rate_rows import check_rows
from vtune.runs.curate.recipe import DataRecipe, PassRate
from vtune.runs.curate.results import Results
from vtune.runs.curate.review import REPLIES, check_judges, judge_all
from vtune.runs.curate.rows import VALID, Dropped, Rows
from vtune.runs.curate.workers import Look
from vtune.uses import defined, ill_made

Paid = ExternalKnowledge | LabelCheck | PassRate
"""Filters that cost model calls; their results are kept."""
Asking = Paid | PeopleLabels
"""Filters whose rows wait for an answer from a model or a person."""


@dataclass(slots=True)
class Bought:
    """Results of filters that ask models."""

    unscored: dict[str, int] = field(default_factory=dict)
    """Filter -> number of rows that could not be judged."""
    queue: list[dict[str, Any]] = field(default_factory=list)
    notes: dict[tuple[str, int], dict[str, float]] = field(default_factory=dict)
    """(source, position) -> filter -> number to store with the row."""


def filter_rows(
    recipe: DataRecipe,
    rows: Rows,
    ledger: Ledger,
    looks: Look,
    reviews: Results,
    out: Path,
    *,
    show: bool = True,
) -> Bought:
    """Send the rows through all filters; `show` says whether progress is printed.

    Consecutive rules run in one pass over the rows, which also takes the keys for the corpus filter after
    them. The first pass always runs: it finds the rows that cannot be used.
    """
    bought = Bought()
    rules: list[tuple[int, Selected]] = []
    seen: set[bytes] | None = set()
    for column, spec in enumerate(recipe.filters, start=1):
        part = FILTERS[spec.filter]
        if part.rule is not None:
            rules.append((column, spec))
            continue
        corpus = (column, spec) if part.corpus is not None else None
        if rules or corpus or seen is not None:
            _sift(rows, ledger, looks, rules, corpus, seen, recipe.seed, show=show)
        if isinstance(spec, Asking):
            _ask(spec, column, rows, ledger, reviews, out, bought, show=show)
        rules, seen = [], None
    if rules or seen is not None:
        _sift(rows, ledger, looks, rules, None, seen, recipe.seed, show=show)
    return bought


def _sift(
    rows: Rows,
    ledger: Ledger,
    looks: Look,
    rules: Sequence[tuple[int, Selected]],
    corpus: tuple[int, Selected] | None,
    seen: set[bytes] | None,
    seed: int,
    *,
    show: bool,
) -> None:
    """One pass over the remaining rows; with `seen`, repeated ids are found as well."""
    tasks = list(rows.tasks(rules, corpus))
    names = [ledger.columns[column] for column, _ in (*rules, *([corpus] if corpus else []))]
    places: list[tuple[str, int, str]] = []
    entries: list[tuple[str, Any]] = []
    with Steps(", ".join(names) or "valid", len(tasks), show=show) as progress:
        for found in looks(tasks):
            source = found.part.source
            twice = _twice(found.identities, seen)
            for gone in found.dropped:
                if gone.position not in twice:
                    ledger.drop(source, gone)
            for position, name in twice.items():
                ledger.drop(source, Dropped(position, VALID, name, "its id is taken by an earlier row"))
            ledger.repeated[source] += len(twice)
            for position, name, key in found.keys:
                if position not in twice:
                    places.append((source, position, name))
                    entries.append((source, key))
            ledger.concerned.update(found.concerned)
            progress.advance()
    if corpus is None:
        return
    column, spec = corpus
    decide = FILTERS[spec.filter].corpus
    assert decide is not None
    reasons = decide.decide(spec, entries, random.Random(f"{ledger.columns[column]} {seed}"))
    for number, reason in _in_order(spec.filter, reasons, len(places)):
        source, position, name = places[number]
        if isinstance(reason, Like):
            other_source, other, other_name = places[_index(spec.filter, reason.row, len(places))]
            file, row = rows.stands(other_source, other)
            reason = reason.named(other_name, f"{file}, row {row}")
        elif not isinstance(reason, str) or not reason.strip():
            file, row = rows.stands(source, position)
            raise no_reason(spec.filter, reason, f"sample {name!r}, row {row} of {file}")
        ledger.drop(source, Dropped(position, column, name, reason))


def _in_order(name: str, reasons: object, count: int) -> list[tuple[int, Any]]:
    """(index, reason) of the rows that a filter over all rows drops, in order.

    Raises:
        BrokenPart: If a user's own filter returned no mapping, or one whose keys are not indexes of its rows.
    """
    if not isinstance(reasons, Mapping):
        raise _misdecided(name, f"`decide` returns {reasons!r:.60}, not a dict")
    return sorted(((_index(name, key, count), reason) for key, reason in reasons.items()), key=itemgetter(0))


def _index(name: str, given: object, count: int) -> int:
    """An index of a filter's rows, checked: -1 would drop the last row."""
    # Also numpy's integers, but not True and False.
    if isinstance(given, bool) or not isinstance(given, SupportsIndex) or not 0 <= index(given) < count:
        raise _misdecided(name, f"`decide` names row {given!r:.60}, and its rows are 0 to {count - 1}")
    return index(given)


def _misdecided(name: str, what: str) -> Exception:
    """The error for a filter over all rows whose decision cannot be followed."""
    corpus = FILTERS[name].corpus
    assert corpus is not None
    fix = "return {index: reason} for the rows to drop, by their index in what it is given"
    return ill_made((FILTERS.kind, name), what, fix, defined(corpus.decide))


def _twice(identities: Sequence[tuple[int, str]], seen: set[bytes] | None) -> dict[int, str]:
    """Position -> id of the rows whose id was seen before."""
    if seen is None:
        return {}
    twice = {}
    for position, name in identities:
        mark = hashlib.blake2b(name.encode(), digest_size=8).digest()
        if mark in seen:
            twice[position] = name
        seen.add(mark)
    return twice


def _ask(
    spec: Asking,
    column: int,
    rows: Rows,
    ledger: Ledger,
    reviews: Results,
    out: Path,
    bought: Bought,
    *,
    show: bool,
) -> None:
    """Have models or people look at the remaining rows."""
    name = ledger.columns[column]
    items = chain.from_iterable(rows.items(source) for source in rows.left)
    left = sum(len(rows.positions(source)) for source in rows.left)
    kept = out / "results"
    with Steps(name, left, show=show) as progress:
        if isinstance(spec, PassRate):
            needs = check_rows(spec, (item for source in rows.left for _, item in rows.items(source)))
            if needs.judge and spec.judge is not None:
                check_judges({name: spec.judge}, kept, pictures=False)
            measuring = measure_all(spec, items, kept, rows=left, sandbox=needs.sandbox, progress=progress)
            found = asyncio.run(measuring)
        elif isinstance(spec, PeopleLabels):
            found = ask_people(spec, items, reviews, progress=progress)
        else:
            asking = judge_all(spec, items, reviews, cache=kept / REPLIES, rows=left, progress=progress)
            found = asyncio.run(asking)
    if isinstance(spec, Paid) and len(found.unscored) > spec.max_unscored * len(found.asked):
        raise RunFailed(
            f"{name}: {len(found.unscored)} of {len(found.asked)} rows could not be judged, "
            f"the limit is {spec.max_unscored:.1%}",
            where=Counter(found.unscored.values()).most_common(1)[0][0],
            fix="fix the model or its service, then start the same command again: nothing is asked twice",
        )
    ledger.concerned[column] += len(found.asked)
    reasons = found.dropped | {place: f"not judged: {why}" for place, why in found.unscored.items()}
    for (source, position), reason in reasons.items():
        ledger.drop(source, Dropped(position, column, found.asked[source, position], reason))
    for (source, position), truth in found.corrected.items():
        rows.truths[source][position] = truth
    for place, note in found.notes.items():
        bought.notes.setdefault(place, {})[name] = note
    bought.queue += found.queue
    if found.unscored:
        bought.unscored[name] = len(found.unscored)
