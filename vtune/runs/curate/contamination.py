"""The filter `contamination`: the benchmarks that training data must not overlap with."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vtune.config import find, load_recipe, shipped
from vtune.curate.duplicates import ROUND, SMALLER, Benchmarks, Contamination, benchmark_key
from vtune.curate.filters import FILTERS, Corpus, FilterPart
from vtune.curate.item import Item, identity
from vtune.curate.likeness import Key
from vtune.data.formats.samples import NAME as SAMPLES
from vtune.runs.curate.recipe import DataRecipe
from vtune.runs.evaluate.questions import Source, fingerprints, read_questions
from vtune.runs.evaluate.suite import EvalSuite
from vtune.schema.message import IMAGE, Message, Picture
from vtune.schema.parquet import write_samples
from vtune.schema.sample import Sample
from vtune.verifiers import exact

PACKAGE = "eval_suites"


def absent_by_name(spec: Contamination) -> list[str]:
    """Suites and files that a filter names explicitly but that are missing here, wholly or partly."""
    named = spec.data if spec.suites == "all" else (*spec.suites, *spec.data)
    return [name for name, source in _sources(spec).items() if name in named and not _is_here(source)]


def present_benchmarks(recipe: DataRecipe) -> dict[str, bool]:
    """Benchmark -> whether its data are here, for all that the recipe's filters name."""
    found: dict[str, bool] = {}
    for spec in recipe.filters:
        if isinstance(spec, Contamination):
            found |= {name: _is_here(source) for name, source in _sources(spec).items()}
    return found


def benchmark_prints(spec: Contamination) -> dict[str, str]:
    """Fingerprints of all data of the available benchmarks."""
    here = [fingerprints(source) for source in _sources(spec).values() if _is_here(source)]
    return {name: mark for prints in here for name, mark in prints.items()}


def in_a_benchmark(
    spec: Contamination, entries: Sequence[tuple[str, Key]], rng: random.Random
) -> Mapping[int, str]:
    """Index -> reason for the rows that an available benchmark also contains.

    Args:
        spec: When a row counts as contaminated.
        entries: (source, key) of each row.
        rng: Not used: the result is deterministic.

    Raises:
        VtuneError: If a suite or one of its files cannot be read.
    """
    places: list[tuple[str, str, int]] = []
    theirs: list[Key] = []
    for item, row in _items(spec):
        places.append((identity(item.record), item.source, row))
        theirs.append(benchmark_key(spec, item))
    found = Benchmarks(spec, theirs).contaminated([key for _, key in entries])
    reasons = {}
    for number, like in found.items():
        name, benchmark, row = places[like.row]
        # A suite may have several files, so a row number would be ambiguous; the id finds the question.
        reasons[number] = like.named(name, f"{benchmark}, row {row}" if benchmark in spec.data else benchmark)
    return reasons


def _items(spec: Contamination) -> Iterator[tuple[Item, int]]:
    """The questions of all available benchmarks, with their number in each."""
    for name, source in _sources(spec).items():
        if _is_here(source):
            for row, (sample, pictures) in enumerate(read_questions(source, limit=None)):
                images = tuple(Picture(data=data) for data in pictures)
                yield Item(replace(sample, images=images), name, Path()), row


def _sources(spec: Contamination) -> Mapping[str, Source]:
    """Benchmark -> its questions as in its data, without what a suite adds around them."""
    names = sorted(shipped(PACKAGE)) if spec.suites == "all" else list(spec.suites)
    suites = {name: load_recipe(find(name, PACKAGE), EvalSuite) for name in names}
    found = {
        name: Source(data=suite.data, format=suite.format, data_from=suite.data_from, choices=None)
        for name, suite in suites.items()
    }
    return found | {
        path: Source(data=(path,), format=SAMPLES, data_from="the recipe names it", choices=None)
        for path in spec.data
    }


def _is_here(source: Source) -> bool:
    return all(Path(path).exists() for path in source.data)


def _held_out(folder: Path, url: str) -> dict[str, Any]:
    """A file with a picture that rows may not contain."""
    asked = Message("user", f"{IMAGE}What is in the middle?")
    row = Sample(
        id="held/1",
        source="held",
        prompt=(asked,),
        images=(ROUND,),
        ground_truth="black",
        verifier=exact.NAME,
    )
    write_samples(folder / "held.parquet", [row])
    return {"suites": (), "data": (str(folder / "held.parquet"),)}


FILTERS.add(
    "contamination",
    FilterPart(
        Contamination,
        Corpus(benchmark_key, in_a_benchmark),
        looks_at=("samples", "traces"),
        drops={"images": (SMALLER,)},
        example=_held_out,
    ),
)
