import json
from pathlib import Path
from typing import Any

import pytest

from tests.runs.commands import vtune
from tests.view.runs import LOOKED, MISSED
from vtune.errors import DataError
from vtune.runs.report.document import run_report
from vtune.schema.parquet import write_trajectories


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


def test_first_last_and_best_are_reported_by_source(tmp_path: Path) -> None:
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


def test_a_step_without_a_call_of_a_tool_counts_as_0_calls(tmp_path: Path) -> None:
    """Its row has no such key; without it, the mean over the steps would be one over those with calls."""
    called = {"tool_zoom_calls": 5, "tool_zoom_errors": 1, "tool_zoom_score": 0.5}
    idle = {"step": 0, "source": "all", "tool_calls": 0.0}
    lines = [idle, {"step": 1, "source": "all", **called}, {"step": 1, "source": "lens"}]
    (run,) = run_report([write_run(tmp_path / "mine", lines)])["runs"]  # type: ignore[misc]
    numbers = run["sources"]["all"]
    assert [numbers[f"tool_zoom_{kind}"]["values"] for kind in ("calls", "errors")] == [[0, 5], [0, 1]]
    assert numbers["tool_zoom_score"]["steps"] == [1]
    assert numbers["tool_calls"]["steps"] == [0]
    assert "tool_zoom_calls" not in run["sources"]["lens"]


def test_an_online_evaluation_is_not_the_last_step(tmp_path: Path) -> None:
    """Its row has the number of steps before it."""
    after: dict[str, object] = {"step": 3, "source": "eval/lens", "score": 0.5}
    (run,) = run_report([write_run(tmp_path / "mine", [*LINES, after])])["runs"]  # type: ignore[misc]
    assert run["last_step"] == 2
    before: dict[str, object] = {"step": 0, "source": "eval/lens", "score": 0.5}
    (run,) = run_report([write_run(tmp_path / "begun", [before])])["runs"]  # type: ignore[misc]
    assert run["last_step"] is None


def test_the_total_number_of_steps_comes_from_the_recipe_or_the_run(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "mine", LINES)
    (folder / "environment.json").write_text('{"steps": 9}')
    found = []
    for recipe in ("steps: 3\n", "epochs: 2.0\nsteps: null\n"):
        (folder / "recipe.yaml").write_text(recipe)
        found += [run["steps"] for run in run_report([folder])["runs"]]  # type: ignore[attr-defined]
    assert found == [3, 9]


def test_a_run_without_a_step_yet_is_no_error(tmp_path: Path) -> None:
    (run,) = run_report([write_run(tmp_path / "mine", [])])["runs"]  # type: ignore[misc]
    assert (run["last_step"], run["sources"]) == (None, {})


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no recipe\.yaml"):
        run_report([tmp_path])
    folder = write_run(tmp_path / "mine", LINES)
    (folder / "environment.json").write_text("{")
    with pytest.raises(DataError, match="not JSON"):
        run_report([folder])
    (folder / "recipe.yaml").write_text("a: [")
    with pytest.raises(DataError, match="not YAML"):
        run_report([folder])


def write_evaluation(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    results = {
        "model": "m",
        "samples": 2,
        "limit": None,
        "score": {"score": 0.5},
        "sources": {},
        "faithfulness": {},
    }
    results |= {"unaudited": 0}
    (folder / "suite.yaml").touch()
    (folder / "results.json").write_text(json.dumps(results))
    return folder


def test_replies_of_an_evaluation_are_its_worst_and_its_best(tmp_path: Path) -> None:
    write_evaluation(tmp_path)
    shown = vtune("report", tmp_path, "--replies")
    assert f"{tmp_path.name}: no replies are kept" in shown.out
    write_trajectories(tmp_path / "trajectories.parquet", [LOOKED, MISSED, LOOKED])
    (evaluation,) = run_report([tmp_path], replies=True)["evaluations"]  # type: ignore[misc]
    assert [one["reward"] for one in evaluation["replies"]] == pytest.approx([0.1, 1.5])
    assert "replies, from the worst to the best" in vtune("report", tmp_path, "--replies").out
    assert "from the worst" not in vtune("report", tmp_path).out


def test_a_folder_of_runs_and_evaluations_is_all_of_them(tmp_path: Path) -> None:
    write_run(tmp_path / "rl", LINES)
    write_evaluation(tmp_path / "eval" / "after")
    (tmp_path / "eval" / "begun").mkdir()
    (tmp_path / "eval" / "begun" / "suite.yaml").touch()
    report = run_report([tmp_path])
    assert [one["name"] for one in report["runs"]] == ["rl"]  # type: ignore[attr-defined]
    assert [one["name"] for one in report["evaluations"]] == ["after"]  # type: ignore[attr-defined]
    assert report["unfinished"] == [str(tmp_path / "eval" / "begun")]
    assert "not finished, and left out" in vtune("report", tmp_path).out
    with pytest.raises(DataError, match="is not finished"):
        run_report([tmp_path / "eval" / "begun"])


def curated(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name in ("recipe.yaml", "curation.json"):
        (folder / name).touch()
    return folder


def test_a_curation_is_not_shown_as_an_unfinished_run(tmp_path: Path) -> None:
    one = curated(tmp_path / "data" / "cur")
    for path, why in (
        (one, "is the folder of a curation, not of a run"),
        (one.parent, "only curations"),
    ):
        ended = vtune("report", path)
        assert (ended.code, why in ended.err) == (2, True), ended
        assert "page.html" in ended.err
    write_run(tmp_path / "rl", LINES)
    assert run_report([tmp_path])["unfinished"] == []


@pytest.mark.parametrize("options", [(), ("--credit",), ("--csv",)])
def test_a_missing_folder_is_reported_as_missing(tmp_path: Path, options: tuple[str, ...]) -> None:
    ended = vtune("report", tmp_path / "gone", *options)
    assert ended.code == 2
    assert f"there is no folder {tmp_path / 'gone'}" in ended.err


def test_without_finished_runs_there_is_no_report(tmp_path: Path) -> None:
    (tmp_path / "eval" / "begun").mkdir(parents=True)
    (tmp_path / "eval" / "begun" / "suite.yaml").touch()
    ended = vtune("report", tmp_path)
    assert (ended.code, ended.out) == (2, "")
    assert "no evaluation is finished" in ended.err
    assert str(tmp_path / "eval" / "begun") in ended.err


def test_a_broken_run_in_a_folder_hides_no_other_and_one_that_was_named_is_an_error(tmp_path: Path) -> None:
    for name in ("good", "broken", "recipe"):
        write_run(tmp_path / name, LINES)
    log, recipe = tmp_path / "broken/metrics.jsonl", tmp_path / "recipe/recipe.yaml"
    log.write_text("[]\n" + log.read_text())
    recipe.write_text("steps: [\n")
    report: Any = run_report([tmp_path])
    assert [run["name"] for run in report["runs"]] == ["good"]
    assert set(report["unreadable"]) == {str(log.parent), str(recipe.parent)}
    assert str(log) in report["unreadable"][str(log.parent)]
    shown = vtune("report", tmp_path)
    assert shown.code == 0
    assert f"left out: {log.parent}: " in " ".join(shown.out.split())
    with pytest.raises(DataError, match="a metrics line needs"):
        run_report([tmp_path / "good", log.parent])


def test_a_folder_in_which_all_runs_are_broken_is_an_error(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_run(tmp_path / name, LINES)
        (tmp_path / name / "metrics.jsonl").write_text("[]\n")
    shown = vtune("report", tmp_path)
    assert shown.code == 2
    said = " ".join(shown.err.split())
    assert f"{tmp_path / 'one'} is broken: a metrics line needs" in said
    assert "so is 1 more" in said


def test_evaluations_can_be_exported_as_a_table_but_runs_cannot(tmp_path: Path) -> None:
    first, second = (write_evaluation(tmp_path / name) for name in ("before", "after"))
    lines = vtune("report", first, second, "--csv").out.splitlines()
    assert [line.partition(",")[0] for line in lines] == ["evaluation", "before", "after"]
    assert vtune("report", first, second, "--latex").out.count(r"\\") == 3
    refused = vtune("report", first, write_run(tmp_path / "rl", LINES), "--csv")
    assert refused.code == 2
    assert "is neither" in refused.err
    assert vtune("report", first, "--csv", "--json").code == 2


def test_an_exported_table_names_unfinished_evaluations(tmp_path: Path) -> None:
    folder = tmp_path / "all"
    write_evaluation(folder / "done")
    assert "not finished" not in vtune("report", folder, "--csv").err + vtune("report", folder, "--latex").out
    (folder / "begun").mkdir()
    (folder / "begun" / "suite.yaml").touch()
    said = f"not finished, and left out: {folder / 'begun'}"
    as_csv, as_latex = vtune("report", folder, "--csv"), vtune("report", folder, "--latex")
    assert (as_csv.out.count("\n"), as_csv.err.strip()) == (2, said)
    assert as_latex.out.splitlines()[0] == f"% {said}"


def test_folders_with_the_same_name_are_distinguished_by_path(tmp_path: Path) -> None:
    folders = [write_evaluation(tmp_path / name / "eval" / "lens") for name in ("a", "b")]
    twice: Any = run_report([*folders, folders[0]])["evaluations"]
    assert [one["name"] for one in twice] == ["a/eval/lens", "b/eval/lens", "a/eval/lens"]
    alone: Any = run_report(folders[:1] * 2)["evaluations"]
    assert [one["name"] for one in alone] == ["lens", "lens"]
    rows = vtune("report", *folders, "--csv").out.splitlines()
    assert [row.partition(",")[0] for row in rows] == ["evaluation", "a/eval/lens", "b/eval/lens"]


def test_a_run_without_kept_replies_says_so(tmp_path: Path) -> None:
    run = write_run(tmp_path / "sft", LINES)
    assert (
        "sft: no replies are kept; `vtune rl` and `vtune eval` keep some"
        in vtune("report", run, "--replies").out
    )
