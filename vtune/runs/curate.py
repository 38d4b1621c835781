"""`vtune curate`: sources -> filters -> mix, told in the order in which the rows go through."""

import asyncio
import hashlib
import json
import os
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from vtune.config import dump_recipe
from vtune.curate.balance import random_subset
from vtune.curate.duplicates import Contamination
from vtune.curate.filters import CORPORA, RULES
from vtune.curate.item import Item, Record, Selected
from vtune.curate.judging import ExternalKnowledge, LabelCheck
from vtune.curate.mix import copy_of, interleaved
from vtune.errors import DataError, RunFailed
from vtune.report.curation_page import Shown, curation_page
from vtune.report.progress import Steps, say
from vtune.runs.contamination import benchmark_files, benchmarks_of, present_benchmarks
from vtune.runs.data_recipe import DataRecipe, PassRate
from vtune.runs.difficulty import check_pass_rate, measure_all, model_print
from vtune.runs.folder import check_folder, environment, write_whole
from vtune.runs.funnel import Example, Ledger, funnel
from vtune.runs.results import Results, locked
from vtune.runs.review import judge_all, take_reviews, write_queue
from vtune.runs.rows import VALID, Dropped, Rows
from vtune.runs.workers import Look, Workers, check_workers, looking
from vtune.schema.message import Picture
from vtune.schema.parquet import count_rows, data_sources, fingerprint, write_samples, write_trajectories
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory

Paid = ExternalKnowledge | LabelCheck | PassRate
"""Filters that cost calls of a model; what they found is kept."""
MADE = ("drops.jsonl", "page.html", "recipe.yaml")
"""Files that a run leaves beside its records, `curation.json` and the queue."""


def check_curation(recipe: DataRecipe) -> dict[str, Any]:
    """What a run would read and at most pay for; nothing is started, and what is missing is listed.

    Raises:
        VtuneError: If a file is there and cannot be used.
    """
    sources: dict[str, dict[str, Any]] = {}
    for name, source in recipe.used.items():
        missing = [file for file in source.files if not Path(file).exists()]
        rows = None if missing else sum(_count(Path(file), source.data_source) for file in source.files)
        looked = None if rows is None else min(rows, source.sample or rows)
        sources[name] = {"rows": rows, "sampled": looked, "missing": ", ".join(missing)}
    known = sum(row["sampled"] or 0 for row in sources.values())
    filters: dict[str, dict[str, Any]] = {}
    for name, spec in zip(recipe.columns, recipe.filters, strict=True):
        on = spec.rows if spec.rows == "all" else ", ".join(spec.rows)
        most = 0
        if isinstance(spec, PassRate):
            most = known * (spec.rollouts + (spec.first.rollouts if spec.first else 0))
        elif isinstance(spec, Paid):
            most = known
        filters[name] = {"rows": on, "model_calls_at_most": most}
    return {"sources": sources, "filters": filters, "benchmarks": present_benchmarks(recipe)}


def _count(path: Path, only: str | None) -> int:
    return count_rows(path) if only is None else sum(name == only for name in data_sources(path))


def run_curate(recipe: DataRecipe, out: Path, *, workers: Workers = "local") -> dict[str, Any]:
    """Curate, and write records, drops, a page and the funnel to `out`.

    A run that was interrupted goes on when it is started again: replies of models are kept in `out/results`
    by the content that they are about, so that none is asked for twice, also by another recipe in the same
    folder. Where nothing has changed, the result of the last run is given back.

    Args:
        recipe: Sources, filters, mix.
        out: The folder.
        workers: Who looks at the rows; the result is the same.

    Returns:
        What `curation.json` holds: the funnel by source, the mix by ability, warnings, files.

    Raises:
        RunFailed: If no row is left, or too many could not be judged.
        VtuneError: If something in the recipe or the data cannot be used.
    """
    check_folder(out)
    check_workers(workers)
    for spec in recipe.filters:
        if isinstance(spec, PassRate):
            check_pass_rate(spec)
    files = {name: [Path(file) for file in source.files] for name, source in recipe.used.items()}
    rows = Rows(recipe.records, files, {name: source.data_source for name, source in recipe.used.items()})
    out.mkdir(parents=True, exist_ok=True)
    with locked(out), Results(out / "results" / "reviews.jsonl") as reviews:
        take_reviews(out / "queue.jsonl", reviews)
        inputs = _inputs(recipe, out)
        before = _unchanged(out, inputs)
        if before is not None:
            say(f"nothing has changed since {out} was made")
            return before
        # What is there is no longer the result of one run.
        (out / "curation.json").unlink(missing_ok=True)
        with looking(workers) as looks:
            return _curate(recipe, rows, looks, reviews, out, inputs)


def _curate(
    recipe: DataRecipe, rows: Rows, looks: Look, reviews: Results, out: Path, inputs: str
) -> dict[str, Any]:
    sizes = _sample(recipe, rows)
    with Ledger(rows, ["valid", *recipe.columns, "mix"], out / "drops.jsonl", recipe.seed) as ledger:
        paid = _filter(recipe, rows, ledger, looks, reviews, out)
        _cap(recipe, rows, ledger)
    write_queue(out / "queue.jsonl", paid.queue)
    final = {source: len(rows.positions(source)) * recipe.mix.repeat.get(source, 1) for source in rows.left}
    table = funnel(ledger, sizes, final)
    warnings = _warnings(recipe, table, ledger)
    if not table["all"]["after"]:
        raise RunFailed(
            "no row is left", where="; ".join(warnings), fix=f"see {out / 'drops.jsonl'} for the reasons"
        )
    records, abilities = _write(recipe, rows, paid.notes, out)
    result = {
        "records": recipe.records,
        "funnel": table,
        "published": {name: source.published for name, source in recipe.used.items() if source.published},
        "abilities": abilities,
        "unscored": paid.unscored,
        "waiting_for_review": len(paid.queue),
        "warnings": warnings,
        "benchmarks": present_benchmarks(recipe),
        "files": [records.name, *MADE],
    }
    write_whole(out / "recipe.yaml", dump_recipe(recipe))
    shown = {name: _shown(rows, ledger.examples(n)) for n, name in enumerate(ledger.columns)}
    kept = {source: _shown(rows, ledger.kept_examples(source)) for source in rows.left}
    write_whole(out / "page.html", curation_page(result, shown, kept))
    made = {name: fingerprint(out / name) for name in (records.name, *MADE)}
    write_whole(out / "environment.json", json.dumps(environment({}), indent=2) + "\n")
    document = {"inputs": inputs, "made": made, "result": result}
    write_whole(out / "curation.json", json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    return result


def _sample(recipe: DataRecipe, rows: Rows) -> dict[str, tuple[int, int]]:
    """Leave of each source the rows that are to be looked at; return (rows, rows left) by source."""
    sizes = {}
    for name, source in recipe.used.items():
        there = rows.positions(name)
        chosen = random_subset(there, source.sample, random.Random(f"sample {recipe.seed} {name}"))
        if len(chosen) < len(there):
            rows.left[name] = bytearray(n in chosen for n in range(len(rows.left[name])))
        sizes[name] = (len(there), len(chosen))
    return sizes


@dataclass(slots=True)
class _Paid:
    """What filters that ask models have left behind."""

    unscored: dict[str, int] = field(default_factory=dict)
    """Filter -> rows that nobody could judge."""
    queue: list[dict[str, Any]] = field(default_factory=list)
    notes: dict[tuple[str, int], dict[str, float]] = field(default_factory=dict)
    """(source, position) -> filter -> number to keep with the row."""


def _filter(
    recipe: DataRecipe, rows: Rows, ledger: Ledger, looks: Look, reviews: Results, out: Path
) -> _Paid:
    """Send the rows through all filters.

    Rules that follow each other are one pass over the rows, together with the keys of the corpus filter
    behind them. The first pass always runs: it finds the rows that cannot be used.
    """
    paid = _Paid()
    rules: list[tuple[int, Selected]] = []
    seen: set[bytes] | None = set()
    for column, spec in enumerate(recipe.filters, start=1):
        if type(spec) in RULES:
            rules.append((column, spec))
            continue
        corpus = (column, spec) if type(spec) in CORPORA else None
        if rules or corpus or seen is not None:
            _sift(rows, ledger, looks, rules, corpus, seen, recipe.seed)
        if isinstance(spec, Paid):
            _pay(spec, column, rows, ledger, reviews, out, paid)
        rules, seen = [], None
    if rules or seen is not None:
        _sift(rows, ledger, looks, rules, None, seen, recipe.seed)
    return paid


def _sift(
    rows: Rows,
    ledger: Ledger,
    looks: Look,
    rules: Sequence[tuple[int, Selected]],
    corpus: tuple[int, Selected] | None,
    seen: set[bytes] | None,
    seed: int,
) -> None:
    """One pass over what is left; with `seen`, ids that come twice are found, too."""
    tasks = list(rows.tasks(rules, corpus))
    names = [ledger.columns[column] for column, _ in (*rules, *([corpus] if corpus else []))]
    places: list[tuple[str, int, str]] = []
    entries: list[tuple[str, Any]] = []
    with Steps(", ".join(names) or "valid", len(tasks)) as progress:
        for found in looks(tasks):
            source = found.part.source
            twice = _twice(found.identities, seen)
            for gone in found.dropped:
                if gone.position not in twice:
                    ledger.drop(source, gone)
            for position, name in twice.items():
                ledger.drop(source, Dropped(position, VALID, name, "its id has come before"))
            for position, name, key in found.keys:
                if position not in twice:
                    places.append((source, position, name))
                    entries.append((source, key))
            ledger.concerned.update(found.concerned)
            progress.advance()
    if corpus is None:
        return
    column, spec = corpus
    if isinstance(spec, Contamination):
        reasons = benchmarks_of(spec).contaminated(entries)
    else:
        rng = random.Random(f"{ledger.columns[column]} {seed}")
        reasons = CORPORA[type(spec)].decide(spec, entries, rng)
    for number, reason in sorted(reasons.items()):
        source, position, name = places[number]
        ledger.drop(source, Dropped(position, column, name, reason))


def _twice(identities: Sequence[tuple[int, str]], seen: set[bytes] | None) -> dict[int, str]:
    """Position -> id of the rows whose id has come before."""
    if seen is None:
        return {}
    twice = {}
    for position, name in identities:
        mark = hashlib.blake2b(name.encode(), digest_size=8).digest()
        if mark in seen:
            twice[position] = name
        seen.add(mark)
    return twice


def _pay(
    spec: Paid, column: int, rows: Rows, ledger: Ledger, reviews: Results, out: Path, paid: _Paid
) -> None:
    """Have models look at what is left."""
    name = ledger.columns[column]
    items = chain.from_iterable(rows.items(source) for source in rows.left)
    with Steps(name, sum(len(rows.positions(source)) for source in rows.left)) as progress:
        if isinstance(spec, PassRate):
            found = asyncio.run(measure_all(spec, items, out / "results", progress=progress))
        else:
            cache = out / "results" / "judge.jsonl"
            found = asyncio.run(judge_all(spec, items, reviews, cache=cache, progress=progress))
    if len(found.unscored) > spec.max_unscored * len(found.asked):
        raise RunFailed(
            f"{name}: {len(found.unscored)} of {len(found.asked)} rows could not be judged, "
            f"the limit is {spec.max_unscored:.1%}",
            where=Counter(found.unscored.values()).most_common(1)[0][0],
            fix="mend the model or its service, then start the same command again: nothing is asked twice",
        )
    ledger.concerned[column] += len(found.asked)
    reasons = found.dropped | {place: f"not judged: {why}" for place, why in found.unscored.items()}
    for (source, position), reason in reasons.items():
        ledger.drop(source, Dropped(position, column, found.asked[source, position], reason))
    for (source, position), truth in found.corrected.items():
        rows.truths[source][position] = truth
    for place, note in found.notes.items():
        paid.notes.setdefault(place, {})[name] = note
    paid.queue += found.queue
    if found.unscored:
        paid.unscored[name] = len(found.unscored)


def _cap(recipe: DataRecipe, rows: Rows, ledger: Ledger) -> None:
    """Leave of each source no more rows than the mix takes."""
    column = len(ledger.columns) - 1
    for source, most in recipe.mix.caps.items():
        if source not in rows.left:
            continue
        there = rows.positions(source)
        chosen = random_subset(there, most, random.Random(f"cap {recipe.seed} {source}"))
        for position in there:
            if position not in chosen:
                reason = f"not among the {most} that were chosen at random of {len(there)}"
                ledger.drop(source, Dropped(position, column, None, reason))


def _write(
    recipe: DataRecipe, rows: Rows, notes: Mapping[tuple[str, int], Mapping[str, float]], out: Path
) -> tuple[Path, dict[str, dict[str, float]]]:
    """Write what is left, all sources evenly through the file; return it and its rows by ability."""
    repeat = {source: recipe.mix.repeat.get(source, 1) for source in rows.left}
    sizes = {source: len(rows.positions(source)) * times for source, times in repeat.items()}
    streams = {source: _stream(rows, source, times, notes, out) for source, times in repeat.items()}
    counts: Counter[str] = Counter()

    def records() -> Iterator[Record]:
        for source in interleaved(sizes, random.Random(f"mix {recipe.seed}")):
            record = next(streams[source])
            counts[record.ability if isinstance(record, Sample) else ""] += 1
            yield record

    path = out / f"{recipe.records}.parquet"
    if recipe.records == "samples":
        write_samples(path, (record for record in records() if isinstance(record, Sample)))
    else:
        write_trajectories(path, (record for record in records() if isinstance(record, Trajectory)))
    total = counts.total()
    return path, {
        ability: {"rows": count, "share": count / total} for ability, count in sorted(counts.items())
    }


def _stream(
    rows: Rows, source: str, times: int, notes: Mapping[tuple[str, int], Mapping[str, float]], out: Path
) -> Iterator[Record]:
    for number in range(times):
        for position, item in rows.items(source):
            record = item.record
            images = tuple(_placed(picture, item.base, out) for picture in record.images)
            if isinstance(record, Sample):
                note = notes.get((source, position), {})
                record = replace(record, images=images, extra={**record.extra, **note})
            else:
                record = replace(record, images=images)
            yield copy_of(record, number)


def _placed(picture: Picture, base: Path, out: Path) -> Picture:
    """The picture as it is found from another folder."""
    if picture.data is not None or picture.path is None:
        return picture
    return replace(picture, path=os.path.relpath(base / picture.path, out))


def _warnings(recipe: DataRecipe, table: Mapping[str, Mapping[str, Any]], ledger: Ledger) -> list[str]:
    """What a person should know before the data are used."""
    told = []
    for column, spec in enumerate(recipe.filters, start=1):
        if not ledger.concerned[column]:
            told.append(
                f"`{ledger.columns[column]}` looked at no row: does `rows` name abilities of the data?"
            )
        elif isinstance(spec, Contamination) and not any(present_benchmarks(recipe).values()):
            told.append(f"`{ledger.columns[column]}` had nothing to compare with: no benchmark is here")
    for source, row in table.items():
        if source == "all":
            continue
        steps = ["sampled", *ledger.columns]
        for before, name in pairwise(steps):
            if row[before] and not row[name]:
                told.append(f"`{name}` dropped all that was left of {source}, {row[before]} rows")
    return told


def _shown(rows: Rows, examples: Sequence[Example]) -> list[Shown]:
    """Examples as the page shows them."""
    shown = []
    for example in examples:
        item = rows.item(example.source, example.position)
        shown.append(Shown(example.source, example.reason, item if isinstance(item, Item) else None))
    return shown


def _inputs(recipe: DataRecipe, out: Path) -> str:
    """A hash of all that the result depends on."""
    prints: dict[str, Any] = {"version": version("vtune"), "recipe": recipe.model_dump(mode="json")}
    for name, source in recipe.used.items():
        prints[f"source {name}"] = [fingerprint(Path(file)) for file in source.files]
    for number, spec in enumerate(recipe.filters):
        if isinstance(spec, Contamination):
            prints[f"benchmarks {number}"] = [fingerprint(path) for path in benchmark_files(spec)]
        if isinstance(spec, PassRate):
            prints[f"model {number}"] = model_print(spec.model)
    reviews = out / "results" / "reviews.jsonl"
    prints["reviews"] = fingerprint(reviews)
    return hashlib.sha256(json.dumps(prints, sort_keys=True).encode()).hexdigest()


def _unchanged(out: Path, inputs: str) -> dict[str, Any] | None:
    """The result of the last run, where this one would make the same and its files are as it left them."""
    path = out / "curation.json"
    if not path.exists():
        return None
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        same = kept["inputs"] == inputs
        made = {name: fingerprint(out / name) for name in kept["made"]} if same else {}
    except (ValueError, KeyError, DataError):
        return None
    return dict(kept["result"]) if same and made == kept["made"] and not kept["result"]["unscored"] else None
