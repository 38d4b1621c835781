"""The benchmarks that training data must keep apart from."""

from collections.abc import Iterator
from pathlib import Path

from vtune.config import find, load_recipe, shipped
from vtune.curate.duplicates import Benchmarks, Contamination, benchmark_key
from vtune.curate.item import Item
from vtune.runs.data_recipe import DataRecipe
from vtune.runs.eval import EvalSuite
from vtune.schema.parquet import read_samples

PACKAGE = "eval_suites"


def present_benchmarks(recipe: DataRecipe) -> dict[str, bool]:
    """Benchmark -> whether its data are here, of all that the recipe's filters name."""
    found = {}
    for spec in recipe.filters:
        if isinstance(spec, Contamination):
            for name, paths in _files(spec).items():
                found[name] = all(path.exists() for path in paths)
    return found


def benchmark_files(spec: Contamination) -> list[Path]:
    """The files of the benchmarks that are here."""
    return [path for paths in _files(spec).values() for path in paths if path.exists()]


def benchmarks_of(spec: Contamination) -> Benchmarks:
    """The benchmarks that are here, ready to be looked up.

    Raises:
        VtuneError: If a suite or a file of one cannot be read.
    """

    def items() -> Iterator[tuple[str, Item]]:
        for name, paths in _files(spec).items():
            for path in paths:
                if path.exists():
                    for sample in read_samples(path):
                        yield name, Item(sample, name, path.parent)

    return Benchmarks(spec, [(name, benchmark_key(spec, item)) for name, item in items()])


def _files(spec: Contamination) -> dict[str, list[Path]]:
    """Benchmark -> its files, here or not."""
    names = sorted(shipped(PACKAGE)) if spec.suites == "all" else list(spec.suites)
    files = {}
    for name in names:
        suite = load_recipe(find(name, PACKAGE), EvalSuite)
        files[name] = [Path(path) for path in suite.data]
    return files | {path: [Path(path)] for path in spec.data}
