"""A user's part that fails after a while of training: all training is saved."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runs.commands import rl, setting, vtune

pytestmark = [pytest.mark.train, pytest.mark.usefixtures("forgetting")]

OWN = Path(__file__).parents[2] / "own"

FAULT = """
ASKED = set()


def faulty(*given):
    ASKED.add(getattr(given[0], "id", len(ASKED)))
    if len(ASKED) > {most}:
        return {{}}["what is not there"]
    return {sound}(*given)


"""
"""A function that breaks at a sample, or else a call, after this many."""


def breaking(name: str, folder: Path, *, most: int) -> Path:
    """A file like that of a part, whose function breaks after `most` samples or calls."""
    head, _, added = (OWN / f"{name}.py").read_text().rpartition("\n\n\n")
    wrong = added.replace(f"({name})", "(faulty)").replace(f", {name})", ", faulty)")
    assert wrong != added
    path = folder / f"{name}.py"
    path.write_text(head + "\n\n" + FAULT.format(most=most, sound=name) + wrong)
    return path


def style(folder: Path, heldout: Path) -> list[str]:
    """A prompt style that breaks in the second step, when it is asked for the third sample."""
    path = breaking("terse", folder, most=2)
    return setting(uses=json.dumps([str(path)]), rollout__prompt="terse", prompts_per_step=2)


def scorer(folder: Path, heldout: Path) -> list[str]:
    """A scorer for a suite that breaks in its second evaluation."""
    path = breaking("worst", folder, most=1)
    settings = {"data": [str(heldout)], "uses": [str(path)], "scorer": "worst"}
    suites = [{"suite": "lens", "limit": 1, "settings": settings}]
    return setting(eval=json.dumps({"every": 1, "suites": suites}))


@pytest.mark.parametrize("part", [style, scorer])
def test_training_is_saved_when_a_part_fails(
    part: Callable[[Path, Path], list[str]], schooled: Path, lens: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    more = part(tmp_path, lens / "heldout.parquet")
    words = rl(schooled.resolve(), lens / "train.parquet", run, *setting(checkpoints__every=100), *more)
    ended = vtune(*words)
    assert ended.code == 1, ended.err
    assert "is broken: KeyError: 'what is not there'" in ended.err
    assert (run / "checkpoints/newest").resolve().name == "step-000001"
