"""`vtune eval --against`: why two results differ, by cause, as far as stored replies can tell."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vtune.config import load_recipe
from vtune.differences import both, differing_keys
from vtune.errors import DataError
from vtune.runs.evaluate.causes import KEYS, Cause, changed, concluded, with_command, within
from vtune.runs.evaluate.compare import PATHS
from vtune.runs.evaluate.finished import TRAJECTORIES, Finished, read_finished, read_results
from vtune.runs.evaluate.identity import suite_as_today
from vtune.runs.evaluate.published import PUBLISHED, against_published, check_benchmark
from vtune.runs.evaluate.rescored import Reading, Reread, judging, parser_keys, readings
from vtune.runs.evaluate.shown import Differences, asked_of, differences
from vtune.runs.evaluate.suite import EvalSuite
from vtune.runs.folder import MAY_CHANGE
from vtune.runs.moved import by_content
from vtune.schema.parquet import read_trajectories

IDLE = (
    "rollout.max_batch",
    "rollout.max_conversations",
    "threads",
    "sandbox",
    "openai.retries",
    "openai.timeout_s",
    "openai.api_key_env",
)
"""Keys that affect how fast an evaluation runs, not what it measures."""


def check_against(against: str, suite: EvalSuite, file: Path) -> None:
    """Check that the other result exists, before an evaluation is run.

    Args:
        against: As in `run_against`.
        suite: The suite to be evaluated.
        file: The suite's file, for errors.

    Raises:
        DataError: If a folder holds no finished evaluation.
        RecipeError: If no such number is published, or it is for another benchmark.
    """
    if against.startswith(PUBLISHED):
        check_benchmark(suite, against.removeprefix(PUBLISHED), file)
    else:
        read_results(Path(against))


def run_against(folder: Path, against: str) -> dict[str, Any]:
    """Explain the difference between a finished evaluation and another result.

    Args:
        folder: Folder of a finished `vtune eval`, whose data have not been moved.
        against: Folder of another evaluation on the same data, or `published:SUITE/ROW`.

    Returns:
        `ours` and `theirs`: `name`, `path`, `model`, `score`; `difference`, ours - theirs; `causes`: see
        `Cause`; `named`: those that differ; `explained`, the sum of their points, and `rest`; `besides`: what
        else differs; `items`; `verdict`. Unknown numbers are None.

    Raises:
        DataError: If a folder holds no finished evaluation, or the data are not the same.
        RecipeError: If there is no such published number.
    """
    ours = read_finished(folder)
    if against.startswith(PUBLISHED):
        return against_published(ours, against.removeprefix(PUBLISHED))
    there = Path(against)
    results = read_results(there)
    _same_data(ours, results)
    theirs = load_recipe(there / "suite.yaml", EvalSuite).model_copy(update={"data": ours.suite.data})
    asked = [asked_of(ours.trajectories()), asked_of(read_trajectories(there / TRAJECTORIES))]
    shown = differences(asked[0], asked[1], ours.samples, (ours.suite, theirs))
    causes = _causes(ours, theirs, results, there, shown)
    items = {
        "both": len(asked[0].keys() & asked[1].keys()),
        "only_ours": len(asked[0].keys() - asked[1].keys()),
        "only_theirs": len(asked[1].keys() - asked[0].keys()),
    }
    besides = _besides(ours.results, results)
    return concluded(_about(folder, ours.results), _about(there, results), causes, besides) | {"items": items}


def _same_data(ours: Finished, results: Mapping[str, Any]) -> None:
    mine, other = ours.results["environment"]["data"], results["environment"]["data"]
    if sorted(mine.values()) != sorted(other.values()):
        raise DataError(
            "the two evaluations are not on the same data: the SHA-256 of `data` differ",
            where=" and ".join(", ".join(one) or "no data" for one in (mine, other)),
            fix="evaluate both on the same files",
        )


def _about(folder: Path, results: Mapping[str, Any]) -> dict[str, Any]:
    score = results["score"].get("score")
    return {
        "name": folder.resolve().name,
        "path": str(folder),
        "model": results["model"],
        "score": score,
    }


def _causes(
    ours: Finished, theirs: EvalSuite, results: Mapping[str, Any], there: Path, shown: Differences
) -> dict[str, Cause]:
    mine = ours.suite
    keys = {name: changed(mine, theirs, name) for name in KEYS}
    here = judging(mine, ours.samples.values(), ours.results)
    other = judging(theirs, ours.samples.values(), results)
    judged = {name: pair for key in here for name, pair in _apart(key, here[key], other[key]).items()}
    parsed = {key: keys["parser"][key] for key in parser_keys(mine, theirs)}
    differing: list[Reread] = [*(["parser"] if parsed else []), *(["judge"] if judged else [])]  # type: ignore[list-item]
    found = readings(ours, theirs, differing, [ours.folder, there])
    decoding = _decoding(ours.results, results, keys["decoding"])
    causes = {
        "prompt": Cause(
            differs=bool(shown.prompt),
            keys=keys["prompt"] if shown.prompt else {},
            items=len(shown.prompt),
            example=shown.example,
        ),
        "parser": _reread(parsed, found.get("parser")),
        "pixels": Cause(
            differs=bool(shown.pixels or keys["pixels"]),
            keys=keys["pixels"],
            items=len(shown.pixels) if shown.sizes_known else None,
        ),
        "order": Cause(
            differs=bool(shown.order), keys=keys["order"] if shown.order else {}, items=len(shown.order)
        ),
        "decoding": Cause(differs=bool(decoding), keys=decoding, items=None),
        "judge": _reread(judged, found.get("judge")),
    }
    return {name: with_command(ours, theirs, name, cause) for name, cause in causes.items()}


def _apart(name: str, here: Any, other: Any) -> dict[str, tuple[Any, Any]]:
    """Differences between two judge models, key by key; if there is only one, both values as they are."""
    if here is None or other is None:
        return {} if here == other else {name: (here, other)}
    pairs = both(differing_keys(here, other), here, other)
    return {f"{name}.{key}": pair for key, pair in pairs.items()}


def _decoding(
    ours: Mapping[str, Any], theirs: Mapping[str, Any], keys: Mapping[str, tuple[Any, Any]]
) -> dict[str, tuple[Any, Any]]:
    """Differences in how replies were generated; a seed has no effect if both are greedy."""
    greedy = all(one["suite"]["rollout"]["temperature"] == 0 for one in (ours, theirs))
    found = {key: values for key, values in keys.items() if not (greedy and key == "seed")}
    refused = [one.get("endpoint", {}).get("without", []) for one in (ours, theirs)]
    for key, here, there in (
        ("engine", ours.get("engine"), theirs.get("engine")),
        ("endpoint.without", *refused),
    ):
        if here != there:
            found[key] = (here, there)
    return found


def _reread(keys: Mapping[str, tuple[Any, Any]], reading: Reading | None) -> Cause:
    if reading is None:
        return Cause(differs=bool(keys), keys=keys, items=0)
    return Cause(
        differs=True,
        keys=keys,
        items=reading.items,
        score=reading.score,
        points=reading.points,
        why=reading.why,
    )


def _besides(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """Differences outside the six causes."""
    other = suite_as_today(theirs["suite"], ours["suite"])
    mine = suite_as_today(ours["suite"], other)
    every = (*MAY_CHANGE, *PATHS, *IDLE, *(key for keys in KEYS.values() for key in keys))
    keys = [key for key in differing_keys(mine, other) if not within(key, every)]
    indexes = [one["environment"].get("indexes", {}) for one in (ours, theirs)]
    keys = by_content(keys, *indexes)
    keys += [key for key in ("model", "script", "limit") if ours.get(key) != theirs.get(key)]
    uses = [one["environment"].get("uses") for one in (ours, theirs)]
    return [*keys, *(["uses"] if uses[0] != uses[1] else [])]
