"""A finished evaluation: its results, its questions as they were asked, and what the policy did."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtune.config import load_recipe
from vtune.errors import DataError
from vtune.files.json_text import read_record
from vtune.protocols.protocol import question_of
from vtune.runs.evaluate.items import RESTORE
from vtune.runs.evaluate.questions import fingerprints, read_published, read_records
from vtune.runs.evaluate.suite import EvalSuite
from vtune.schema.parquet import read_trajectories
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory

RESULTS, TRAJECTORIES = "results.json", "trajectories.parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The content of a folder written by `vtune eval`."""

    folder: Path
    results: Mapping[str, Any]
    """The content of `results.json`."""
    suite: EvalSuite
    samples: Mapping[str, Sample]
    """Id -> question as asked, without its pictures, in the order of the data."""
    questions: Mapping[str, str]
    """Id -> the bare question as in its data, without options and instructions."""

    def trajectories(self) -> Iterator[Trajectory]:
        """One per rollout, in the order of the questions."""
        return read_trajectories(self.folder / TRAJECTORIES)


def read_results(folder: Path) -> dict[str, Any]:
    """The content of a finished evaluation's `results.json`.

    Raises:
        DataError: If the folder has none.
    """
    file = folder / RESULTS
    if not file.is_file():
        inside = sorted(one.parent.name for one in folder.glob(f"*/{RESULTS}"))
        raise DataError(
            f"{folder} holds no finished evaluation",
            fix=f"name one of the evaluations in it, such as {folder / inside[0]}: {', '.join(inside)}"
            if inside
            else "name a folder that `vtune eval` has written; `vtune eval --resume` finishes one that was "
            "interrupted",
        )
    results = read_record(file, "model", "suite", "environment", fix=RESTORE)
    environment, suite = results["environment"], results["suite"]
    known = isinstance(environment, dict) and isinstance(environment.get("data"), dict)
    if not known or not isinstance(suite, dict):
        raise DataError("not the results of an evaluation", where=str(file), fix=RESTORE)
    return results


def read_finished(folder: Path) -> Finished:
    """A finished evaluation, with its questions.

    Raises:
        DataError: If the folder holds none, or its data were moved or have changed.
        RecipeError: If its `suite.yaml` cannot be read.
    """
    results = read_results(folder)
    suite = load_recipe(folder / "suite.yaml", EvalSuite)
    for path in suite.data:
        if not Path(path).exists():
            raise DataError(
                f"the data of {folder} are not at {path}",
                fix="put them back, or run the command in the folder in which `vtune eval` ran",
            )
    if results["environment"]["data"] != fingerprints(suite):
        raise DataError(f"the data of {folder} have changed", fix="put the old files back")
    samples = {sample.id: sample for sample in read_records(suite)}
    questions = {sample.id: question_of(sample)[1] for sample in read_published(suite)}
    return Finished(folder=folder, results=results, suite=suite, samples=samples, questions=questions)
