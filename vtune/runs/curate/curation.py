"""`vtune curate`: sources -> filters -> mix, in the order in which rows pass through."""

import hashlib
import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any

from vtune.config import dump_recipe, read_values
from vtune.curate.balance import random_subset
from vtune.curate.duplicates import Contamination
from vtune.curate.item import ABILITIES, Item, Selected
from vtune.curate.judging import ExternalKnowledge, LabelCheck
from vtune.differences import differing_keys
from vtune.errors import DataError, RecipeError, RunFailed, VtuneError, nearest
from vtune.files.json_text import read_record
from vtune.files.writing import check_file_output, check_folder_output, write_atomically
from vtune.judge.endpoint import JudgeEndpoint
from vtune.models.source import resolved
from vtune.report.curation_page import RATES, Shown, curation_page, rate_bin
from vtune.report.progress import say
from vtune.reward.preflight import ping_judge
from vtune.runs.curate.contamination import absent_by_name, benchmark_prints, present_benchmarks
from vtune.runs.curate.difficulty import check_pass_rate
from vtune.runs.curate.filtering import filter_rows
from vtune.runs.curate.funnel import Example, Ledger, funnel
from vtune.runs.curate.labels import PeopleLabels, doubts
from vtune.runs.curate.mixing import shares, write_mix
from vtune.runs.curate.prints import model_print, tools_print
from vtune.runs.curate.recipe import DataRecipe, PassRate
from vtune.runs.curate.results import Results
from vtune.runs.curate.review import check_judges, take_reviews, write_queue
from vtune.runs.curate.rows import Dropped, Rows
from vtune.runs.curate.workers import Look, Workers, check_workers, looking
from vtune.runs.folder import environment
from vtune.runs.kept_uses import keep_uses
from vtune.runs.start import locked
from vtune.schema.parquet import count_rows, data_sources, distinct, fingerprint, tally
from vtune.uses import prints as using

MADE = ("drops.jsonl", "page.html", "recipe.yaml")
"""Files that a run writes besides its records, `curation.json` and the queue."""
DROPPED_ALL = "dropped-all.jsonl"
"""The run's drops if it keeps no rows."""
REVIEWS = "results/reviews.jsonl"
"""People's decisions on doubted rows; exists from the first start in a folder."""


def check_curation(recipe: DataRecipe) -> dict[str, Any]:
    """What a run would read, and the most it would pay for; starts nothing and lists what is missing.

    Raises:
        VtuneError: If a file exists but cannot be used.
    """
    check_names(recipe)
    sources: dict[str, dict[str, Any]] = {}
    for name, source in recipe.used.items():
        missing = [file for file in source.files if not Path(file).exists()]
        rows = None if missing else sum(_count(Path(file), source.data_source) for file in source.files)
        looked = None if rows is None else min(rows, source.sample or rows)
        sources[name] = {"rows": rows, "sampled": looked, "missing": ", ".join(missing)}
    filters: dict[str, dict[str, Any]] = {}
    for name, spec in zip(recipe.columns, recipe.filters, strict=True):
        on = spec.rows if spec.rows == "all" else ", ".join(spec.rows)
        missing_for = ""
        if isinstance(spec, PassRate):
            try:
                check_pass_rate(spec)
                if spec.judge is not None:
                    ping_judge(spec.judge, pictures=False)
            except VtuneError as error:
                missing_for = error.what
        elif isinstance(spec, ExternalKnowledge | LabelCheck):
            try:
                ping_judge(spec.judge, pictures=True)
            except VtuneError as error:
                missing_for = error.what
        elif isinstance(spec, PeopleLabels):
            missing_for = ", ".join(file for file in spec.files if not Path(file).exists())
        each = _calls_of_a_row(spec)
        # Counting reads columns of the data; filters that ask no model do not need it.
        at_most = each and each * sum(
            _concerned(recipe, spec, one, row["sampled"] or 0) for one, row in sources.items()
        )
        filters[name] = {"rows": on, "model_calls_at_most": at_most, "missing": missing_for}
    return {"sources": sources, "filters": filters, "benchmarks": present_benchmarks(recipe)}


def _calls_of_a_row(spec: Selected) -> int:
    """Maximum number of model calls that a filter makes per row it looks at."""
    if isinstance(spec, PassRate):
        first = spec.first.rollouts if spec.first else 0
        # Without tools, the first pass's rollouts are the first of the full number.
        return max(spec.rollouts, first) if spec.tools is None else spec.rollouts + first
    return int(isinstance(spec, ExternalKnowledge | LabelCheck))


def _concerned(recipe: DataRecipe, spec: Selected, name: str, sampled: int) -> int:
    """Number of a source's rows that a filter looks at, if earlier filters drop none.

    How many rows of a random sample have the filter's abilities is unknown before it is chosen; this returns
    the number in the whole source, but at most the sample's size.
    """
    if not sampled or spec.rows == "all" or name in spec.rows:
        return sampled
    source = recipe.used[name]
    there = sum((tally(Path(file), ("data_source", "ability")) for file in source.files), Counter())
    of_ability = sum(
        count
        for (data_source, ability), count in there.items()
        if ability in spec.rows and source.data_source in (None, data_source)
    )
    return min(sampled, of_ability)


def check_names(recipe: DataRecipe) -> None:
    """Check that every filter names rows that may exist: those of a source or an ability.

    V-Triune's abilities are allowed even if the data have no such row. If a file is missing, the abilities of
    its rows are unknown, and nothing is reported.

    Raises:
        RecipeError: If a filter names rows that do not exist.
        DataError: If a file cannot be read.
    """
    chosen = {number: spec.rows for number, spec in enumerate(recipe.filters) if spec.rows != "all"}
    unknown = [(n, name) for n, names in chosen.items() for name in names if name not in recipe.sources]
    files = [Path(file) for source in recipe.used.values() for file in source.files]
    if not unknown or not all(file.exists() for file in files):
        return
    abilities = set().union(*(distinct(file, "ability") for file in files))
    for number, name in unknown:
        if name not in abilities and name not in ABILITIES:
            raise RecipeError(
                f"filters.{number}.rows names {name!r}, which is neither a source nor an ability of the data",
                where=f"filter `{recipe.columns[number]}`",
                fix=nearest(name, [*recipe.sources, *sorted(abilities)]),
            )


def _count(path: Path, only: str | None) -> int:
    return count_rows(path) if only is None else sum(name == only for name in data_sources(path))


def run_curate(recipe: DataRecipe, out: Path, *, workers: Workers = "local") -> dict[str, Any]:
    """Curate, and write records, drops, a page and the funnel to `out`.

    An interrupted run continues when it is started again: model replies are kept in `out/results`, keyed by
    the content they are about, so that none is asked for twice, even by another recipe in the same folder. If
    nothing has changed, the last run's result is returned.

    Args:
        recipe: Sources, filters, mix.
        out: The folder.
        workers: How rows are processed; the result is the same.

    Returns:
        The content of `curation.json`: the funnel by source, the mix by ability and by `data_source`,
        warnings, files.

    Raises:
        RunFailed: If no row is left, or too many could not be judged.
        ServiceError: If a judge does not answer.
        VtuneError: If something in the recipe or the data cannot be used.
    """
    check_folder_output(out)
    check_workers(workers)
    check_names(recipe)
    for spec in recipe.filters:
        if isinstance(spec, PassRate):
            check_pass_rate(spec)
        elif isinstance(spec, PeopleLabels):
            doubts(spec)
    read = [Path(file) for source in recipe.used.values() for file in source.files]
    if out.is_dir():
        check_file_output(out / f"{recipe.records}.parquet", inputs=read)
        _check_own(out, [f"{recipe.records}.parquet", *MADE])
    rows = Rows(recipe.records, recipe.used)
    with locked(out), Results(out / REVIEWS) as reviews:
        take_reviews(out / "queue.jsonl", reviews)
        inputs = _inputs(recipe, out)
        before = _unchanged(out, inputs)
        if before is not None:
            say(f"nothing has changed since {out} was made")
            return before
        check_judges(_judges(recipe), out / "results", pictures=True)
        _say_replaced(recipe, out)
        with looking(workers) as looks:
            return _curate(recipe, rows, looks, reviews, out, inputs)


def _check_own(out: Path, names: Sequence[str]) -> None:
    """Check that files which this command writes belong to an earlier curation, if they exist.

    Raises:
        RecipeError: If unrelated files would be replaced.
    """
    if any((out / name).exists() for name in ("curation.json", REVIEWS)):
        return
    if foreign := [name for name in names if (out / name).exists()]:
        raise RecipeError(
            f"{out} holds {', '.join(foreign)}, and no curation: they would be replaced",
            fix="choose another --out, or move them away",
        )


def _say_replaced(recipe: DataRecipe, out: Path) -> None:
    """Report that a folder holds the result of different settings, and name these."""
    if not (out / "curation.json").is_file():
        return
    try:
        before = read_values(out / "recipe.yaml")
    except DataError:
        before = {}  # its settings are no longer known, and it is replaced
    differing = [key for key in differing_keys(before, recipe.model_dump(mode="json")) if key != "uses"]
    if before and differing:
        how = f"with other settings ({', '.join(differing)})"
        say(f"{out} was curated {how}; its files will be replaced, replies of models are kept")


def _judges(recipe: DataRecipe) -> dict[str, JudgeEndpoint]:
    """Filter -> the judge that it asks about every row. For `pass_rate` it depends on the rows."""
    named = zip(recipe.columns, recipe.filters, strict=True)
    return {name: spec.judge for name, spec in named if isinstance(spec, ExternalKnowledge | LabelCheck)}


def _curate(
    recipe: DataRecipe, rows: Rows, looks: Look, reviews: Results, out: Path, inputs: str
) -> dict[str, Any]:
    sizes = _sample(recipe, rows)
    drops = out / DROPPED_ALL
    with Ledger(rows, ["valid", *recipe.columns, "mix"], drops, recipe.seed) as ledger:
        bought = filter_rows(recipe, rows, ledger, looks, reviews, out)
        _cap(recipe, rows, ledger)
    waiting, unread = _still_waiting(out / "queue.jsonl", bought.queue, reviews)
    final = {source: len(rows.positions(source)) * recipe.mix.repeat.get(source, 1) for source in rows.left}
    table = funnel(ledger, sizes, final)
    warnings = [*_warnings(recipe, table, ledger), *unread]
    if not table["all"]["after"]:
        # Keep the result of an earlier curation.
        said = drops if (out / "curation.json").exists() else drops.replace(out / "drops.jsonl")
        raise RunFailed("no rows are left", where="; ".join(warnings), fix=f"see {said} for the reasons")
    # From here on, the folder does not hold one run's complete result.
    (out / "curation.json").unlink(missing_ok=True)
    drops.replace(out / "drops.jsonl")
    records, mixed = write_mix(recipe, rows, bought.notes, out)
    result = {
        "records": recipe.records,
        "funnel": table,
        "published": {name: source.published for name, source in recipe.used.items() if source.published},
        "abilities": shares(mixed.abilities),
        "data_sources": shares(mixed.data_sources),
        "rates": _rates(recipe, rows, bought.notes),
        "unscored": bought.unscored,
        "waiting_for_review": len(waiting),
        "warnings": warnings,
        "benchmarks": present_benchmarks(recipe),
        "files": [records.name, *MADE],
    }
    write_atomically(out / "recipe.yaml", dump_recipe(keep_uses(recipe, out)))
    shown = {name: _shown(rows, ledger.examples(n)) for n, name in enumerate(ledger.columns)}
    kept = {source: _shown(rows, ledger.kept_examples(source)) for source in rows.left}
    write_atomically(out / "page.html", curation_page(result, shown, kept))
    made = {name: fingerprint(out / name) for name in (records.name, *MADE)}
    write_atomically(out / "environment.json", json.dumps(environment({}), indent=2) + "\n")
    document = {"inputs": inputs, "made": made, "result": result}
    write_atomically(out / "curation.json", json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    return result


def _sample(recipe: DataRecipe, rows: Rows) -> dict[str, tuple[int, int]]:
    """Keep only the rows of each source that are sampled; return (rows, rows kept) by source."""
    sizes = {}
    for name, source in recipe.used.items():
        there = rows.positions(name)
        chosen = random_subset(there, source.sample, random.Random(f"sample {recipe.seed} {name}"))
        if len(chosen) < len(there):
            rows.left[name] = bytearray(n in chosen for n in range(len(rows.left[name])))
        sizes[name] = (len(there), len(chosen))
    return sizes


def _rates(
    recipe: DataRecipe, rows: Rows, notes: Mapping[tuple[str, int], Mapping[str, float]]
) -> dict[str, dict[str, list[int]]]:
    """Filter by rollouts -> number of rows kept and dropped in each bin of `RATES` of their mean score."""
    found: dict[str, dict[str, list[int]]] = {
        name: {"kept": [0] * len(RATES), "dropped": [0] * len(RATES)}
        for name, spec in zip(recipe.columns, recipe.filters, strict=True)
        if isinstance(spec, PassRate)
    }
    for (source, position), by_filter in notes.items():
        for name, rate in by_filter.items():
            kept = "kept" if rows.left[source][position] else "dropped"
            found[name][kept][rate_bin(rate)] += 1
    return found


def _cap(recipe: DataRecipe, rows: Rows, ledger: Ledger) -> None:
    """Keep at most the number of rows per source that the mix takes."""
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


def _still_waiting(
    queue: Path, lines: list[dict[str, Any]], reviews: Results
) -> tuple[list[dict[str, Any]], list[str]]:
    """Write what waits for a person; return it and warnings.

    Decisions made while this ran count from the next run on. An unreadable file, perhaps half saved, is left
    as it is, so that the next run can report the line.
    """
    before = {line["key"]: reviews.get(line["key"]) for line in lines}
    try:
        take_reviews(queue, reviews)
    except DataError as error:
        return lines, [f"{error.where}: {error.what}; the file is left as it is: fix it, and start again"]
    waiting = [line for line in lines if reviews.get(line["key"]) == before[line["key"]]]
    write_queue(queue, waiting)
    return waiting, []


def _warnings(recipe: DataRecipe, table: Mapping[str, Mapping[str, Any]], ledger: Ledger) -> list[str]:
    """What the user should know before using the data."""
    found = []
    for column, spec in enumerate(recipe.filters, start=1):
        if not ledger.concerned[column]:
            found.append(
                f"`{ledger.columns[column]}` checked no row: none of the rows that reached it is what `rows` "
                "names"
            )
        elif isinstance(spec, Contamination) and not any(present_benchmarks(recipe).values()):
            found.append(f"`{ledger.columns[column]}` had nothing to compare with: no benchmark is here")
        elif isinstance(spec, Contamination) and (absent := absent_by_name(spec)):
            found.append(f"`{ledger.columns[column]}` did not check {', '.join(absent)}: not here")
    for source, count in ledger.repeated.items():
        if count:
            found.append(f"rows of {source} dropped because their ids are taken: {count}")
    for source, row in table.items():
        if source == "all":
            continue
        steps = ["sampled", *ledger.columns]
        for before, name in pairwise(steps):
            if row[before] and not row[name]:
                found.append(f"`{name}` dropped all that was left of `{source}`: {row[before]} of its rows")
    return found


def _shown(rows: Rows, examples: Sequence[Example]) -> list[Shown]:
    """Examples in the form that the page shows."""
    shown = []
    for example in examples:
        item = rows.item(example.source, example.position)
        shown.append(Shown(example.source, example.reason, item if isinstance(item, Item) else None))
    return shown


def _inputs(recipe: DataRecipe, out: Path) -> str:
    """A hash of everything that the result depends on; picture files are assumed to be unchanged."""
    prints: dict[str, Any] = {"version": version("vtune"), "recipe": recipe.model_dump(mode="json")}
    if recipe.uses:
        prints["uses"] = using()
    for name, source in recipe.used.items():
        prints[f"source {name}"] = [fingerprint(Path(file)) for file in source.files]
    for number, spec in enumerate(recipe.filters):
        if isinstance(spec, Contamination):
            prints[f"benchmarks {number}"] = benchmark_prints(spec)
        if isinstance(spec, PeopleLabels):
            prints[f"labels {number}"] = [fingerprint(Path(file)) for file in spec.files]
        if isinstance(spec, PassRate):
            prints[f"model {number}"] = model_print(resolved(spec.model))
            prints[f"tools {number}"] = tools_print(spec.tools)
    prints["reviews"] = fingerprint(out / REVIEWS)
    return hashlib.sha256(json.dumps(prints, sort_keys=True).encode()).hexdigest()


def _unchanged(out: Path, inputs: str) -> dict[str, Any] | None:
    """The last run's result, if this run would produce the same and its files are unchanged."""
    path = out / "curation.json"
    if not path.exists():
        return None
    try:
        kept = read_record(path, "inputs", "made", "result", fix="remove it")
        same = kept["inputs"] == inputs
        made = {name: fingerprint(out / name) for name in kept["made"]} if same else {}
    except (ValueError, KeyError, DataError):
        return None
    return dict(kept["result"]) if same and made == kept["made"] and not kept["result"]["unscored"] else None
