"""Numbers that papers report, and how they came about: `--against published:SUITE/ROW`."""

import json
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from vtune.config import load_recipe, shipped
from vtune.errors import RecipeError, nearest
from vtune.runs.evaluate.causes import KEYS, Cause, changed, concluded, with_command, within
from vtune.runs.evaluate.finished import Finished
from vtune.runs.evaluate.questions import read_records
from vtune.runs.evaluate.rescored import judging, parser_keys, readings
from vtune.runs.evaluate.suite import EvalSuite
from vtune.sections import Strict

PUBLISHED = "published:"
"""Prefix of a row's name."""
TABLES = "eval_suites.published"
"""The package that contains the tables."""


class Said(Strict):
    """What is known about each cause, in words; null: nothing."""

    prompt: str | None = None
    parser: str | None = None
    pixels: str | None = None
    order: str | None = None
    decoding: str | None = None
    judge: str | None = None


class PublishedFaithfulness(Strict):
    """What a paper reports about the faithfulness of models on the same suites."""

    table: str
    """Its number and where to find it."""
    rows: dict[str, dict[str, float]]
    """Model -> name of a built-in suite -> faithful and right, of all questions, in percent."""


class PublishedTable(Strict):
    """A table of a paper."""

    paper: str
    table: str
    """Its number and where to find it."""
    authors: tuple[str, ...]
    """Rows of the paper's own models, which `settings` and `said` describe; others are unknown."""
    settings: dict[str, Any]
    """Dotted keys of a suite, as far as known."""
    said: Said
    rows: dict[str, dict[str, float]]
    """Model -> name of a built-in suite -> its number as printed, in percent."""
    faithful: PublishedFaithfulness | None = None


def published_rows() -> dict[str, tuple[PublishedTable, str, str]]:
    """`SUITE/ROW` -> table, suite, row."""
    found: dict[str, tuple[PublishedTable, str, str]] = {}
    for path in shipped(TABLES).values():
        table = load_recipe(path, PublishedTable)
        for name, scores in table.rows.items():
            found |= {f"{suite}/{name}": (table, suite, name) for suite in scores}
    return found


def published_row(name: str) -> tuple[PublishedTable, str, str]:
    """The table, suite and row of `SUITE/ROW`.

    Raises:
        RecipeError: If there is no such number.
    """
    rows = published_rows()
    if name not in rows:
        raise RecipeError(f"no published number is called {name!r}", fix=nearest(name, rows))
    return rows[name]


def check_benchmark(suite: EvalSuite, name: str, file: Path) -> None:
    """Check that a suite has the benchmark of `SUITE/ROW`.

    Args:
        suite: The suite that was or will be evaluated.
        name: `SUITE/ROW`.
        file: The suite's file, for errors.

    Raises:
        RecipeError: If there is no such number, or it is for another benchmark.
    """
    _, wanted, _ = published_row(name)
    here = suite.published.name
    if here is None:
        raise RecipeError(
            f"{name} is a number of suite `{wanted}`, but this suite does not say which benchmark it has",
            where=str(file),
            fix=f"if it has the data of `{wanted}`, as a copy of that suite does, write "
            f"`name: {wanted}` below its `published`",
        )
    if here != wanted:
        others = [row for row, (_, other, _) in published_rows().items() if other == here]
        raise RecipeError(
            f"{name} is a number of suite `{wanted}`, but this is `{here}`",
            where=str(file),
            fix=f"name a number of `{here}`, e.g. {PUBLISHED}{others[0]}"
            if others
            else f"no number of `{here}` ships; evaluate `{wanted}`",
        )


def against_published(ours: Finished, name: str) -> dict[str, Any]:
    """Like `run_against`, with a number from a paper; what is unknown about it is None.

    Args:
        ours: A finished evaluation.
        name: `SUITE/ROW`.

    Raises:
        RecipeError: If there is no such number, or it is for another benchmark.
    """
    check_benchmark(ours.suite, name, ours.folder / "suite.yaml")
    table, suite, key = published_row(name)
    about = {
        "name": f"{PUBLISHED}{name}",
        "path": f"{table.paper}, {table.table}",
        "model": key,
        "score": table.rows[key][suite] / 100,
    }
    score = ours.results["score"].get("score")
    here = {
        "name": ours.folder.resolve().name,
        "path": str(ours.folder),
        "model": ours.results["model"],
        "score": score,
    }
    theirs, known = ours.suite, set()
    if key in table.authors:
        known = set(table.settings)
        words = [f"{setting}={json.dumps(value)}" for setting, value in table.settings.items()]
        theirs = load_recipe(ours.folder / "suite.yaml", EvalSuite, words)
    said = table.said if key in table.authors else Said()
    causes = {name: _cause(ours, theirs, known, said, name) for name in KEYS}
    return concluded(here, about, causes, _besides(ours, key)) | {"items": None}


def _besides(ours: Finished, row: str) -> list[str]:
    """What else differs from the paper: the model, unless its name matches, and the questions."""
    model, rows = str(ours.results["model"]), ours.suite.published.rows
    found = [] if row in (model, Path(model).name) else ["model"]
    found += [] if ours.results.get("limit") is None else ["limit"]
    if rows is not None and rows != len(ours.samples):
        found.append(f"data ({len(ours.samples)} of {rows} questions)")
    return found


def _cause(ours: Finished, theirs: EvalSuite, known: Collection[str], said: Said, name: str) -> Cause:
    """What is known about a cause; only known settings can differ or be the same."""
    why = getattr(said, name) or "the paper does not say"
    if not any(within(key, KEYS[name]) for key in known):
        return _judge(ours, said) if name == "judge" else Cause(differs=None, keys={}, items=None, why=why)
    keys = changed(ours.suite, theirs, name)
    cause = Cause(differs=bool(keys), keys=keys, items=None, why=f"known: {why}")
    if name == "prompt":
        put = {sample.id: sample.prompt for sample in read_records(theirs)}
        other = [one for one, sample in ours.samples.items() if put[one] != sample.prompt]
        more = {key: values for key, values in keys.items() if key == "rollout.prompt"}
        cause = replace(cause, differs=bool(other or more), keys=keys if other else more, items=len(other))
    if name == "parser":
        keys = {key: keys[key] for key in parser_keys(ours.suite, theirs)}
        cause = replace(cause, differs=bool(keys), keys=keys, items=None if keys else 0)
        if keys:
            found = readings(ours, theirs, ["parser"], [ours.folder])["parser"]
            cause = replace(cause, items=found.items, score=found.score, points=found.points)
            cause = replace(cause, why=found.why or cause.why)
    return with_command(ours, theirs, name, cause)


def _judge(ours: Finished, said: Said) -> Cause:
    """Whether a model judged there; papers do not give its prompts."""
    asked = judging(ours.suite, ours.samples.values(), ours.results)
    here = next((one["model"] for one in asked.values() if one is not None), None)
    if said.judge is None:
        return Cause(differs=None, keys={}, items=None, why="the paper does not say")
    differs = None if here is not None else True
    why = f"known: {said.judge}" + ("; not its prompts" if differs is None else "")
    return Cause(differs=differs, keys={"grader": (here, said.judge)}, items=None, why=why)
