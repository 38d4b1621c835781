"""Stored replies of an evaluation under another protocol, as `vtune eval --against` reads them."""

from pathlib import Path

from vtune.config import load_recipe
from vtune.runs.evaluate.finished import read_finished
from vtune.runs.evaluate.rescored import Reading, readings
from vtune.runs.evaluate.suite import EvalSuite


def reread(folder: Path, protocol: str) -> Reading:
    """The replies under its parser, and its questions to a model; only what a model has answered counts."""
    theirs = load_recipe(folder / "suite.yaml", EvalSuite, [f"protocol={protocol}"])
    return readings(read_finished(folder), theirs, ["parser", "judge"], [folder])["judge"]
