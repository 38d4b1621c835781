import json
from pathlib import Path

import pytest

from vtune.errors import DataError
from vtune.runs.report.document import run_report


def write_run(folder: Path, lines: list[dict[str, object]]) -> Path:
    folder.mkdir()
    (folder / "recipe.yaml").write_text("steps: 3\n")
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


LINES: list[dict[str, object]] = [
    {"step": 0, "source": "all", "reward": 0.25, "red_flags": 0.5, "entropy": 2.0},
    {"step": 1, "source": "all", "red_flags": 0.25, "entropy": 1.0},
    {"step": 2, "source": "all", "reward": 0.75, "red_flags": 0.375, "entropy": 1.5},
    {"step": 2, "source": "lens", "reward": 0.75},
]


def test_first_last_and_best_are_told_by_source(tmp_path: Path) -> None:
    (run,) = run_report([write_run(tmp_path / "mine", LINES)])["runs"]  # type: ignore[misc]
    assert (run["name"], run["last_step"], run["recipe"], run["environment"]) == (
        "mine",
        2,
        {"steps": 3},
        None,
    )
    assert list(run["sources"]) == ["all", "lens"]
    numbers = run["sources"]["all"]
    assert numbers["red_flags"] | {"steps": []} == {
        "first": 0.5,
        "last": 0.375,
        "best": 0.25,
        "steps": [],
        "values": [0.5, 0.25, 0.375],
    }
    assert numbers["entropy"]["best"] is None


def test_an_unscored_step_is_a_gap_in_the_curve(tmp_path: Path) -> None:
    (run,) = run_report([write_run(tmp_path / "mine", LINES)])["runs"]  # type: ignore[misc]
    assert run["sources"]["all"]["reward"]["steps"] == [0, 2]
    assert run["sources"]["all"]["reward"]["values"] == [0.25, 0.75]


def test_a_run_without_a_step_yet_is_no_error(tmp_path: Path) -> None:
    (run,) = run_report([write_run(tmp_path / "mine", [])])["runs"]  # type: ignore[misc]
    assert (run["last_step"], run["sources"]) == (None, {})


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no recipe\.yaml"):
        run_report([tmp_path])
    folder = write_run(tmp_path / "mine", LINES)
    (folder / "environment.json").write_text("{")
    with pytest.raises(DataError, match="not JSON"):
        run_report([folder])
    (folder / "recipe.yaml").write_text("a: [")
    with pytest.raises(DataError, match="not YAML"):
        run_report([folder])
