"""A finished sweep as terminal tables, CSV, LaTeX, a figure, and a page."""

import csv
import io
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from starlette.testclient import TestClient

from tests.runs.commands import vtune
from tests.runs.sweep.folders import SCORES, make_sweep
from tests.runs.view.test_page import held
from vtune.metrics.paired import Pair, mean_difference
from vtune.metrics.power import shown_by, shown_by_seeds
from vtune.report.sweep import effects, plain_tables
from vtune.runs.report.document import run_report
from vtune.runs.sweep.curves import sweep_curves
from vtune.runs.sweep.table import sweep_table
from vtune.runs.view.serving import app_of
from vtune.runs.view.sweeps import sweeps_in, sweeps_of
from vtune.view.place import find_places

T = 4.302653
"""Student's t with two degrees of freedom."""
SD = 0.1
"""Standard deviation of the differences 0.1, 0, 0.2."""
OVER = mean_difference([Pair(str(number), 0.0, float(number < 3)) for number in range(30)])
"""Three of thirty questions are gained."""
SHOWN = shown_by([0.1, 0.0, 0.2], over=OVER)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_sweep(tmp_path / "swept")


@pytest.fixture
def table(folder: Path) -> dict[str, Any]:
    return sweep_table(folder)


def titled(table: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {one["title"]: one for one in plain_tables(table)}


def test_numbers_list_values_by_seed_and_differences_what_they_could_show(
    table: dict[str, Any],
) -> None:
    same = table["variants"]["sharp"]["held_out"]["same"]["accuracy"]
    assert same["values"] == list(SCORES["sharp"])
    assert "shown" not in same
    found = table["differences"]["sharp - plain"]["held_out"]["same"]["accuracy"]
    assert found["values"] == pytest.approx([0.1, 0.0, 0.2])
    assert found["shown"] == pytest.approx(SHOWN)
    assert SHOWN is not None
    assert shown_by_seeds(3) * SD < SHOWN  # questions suggest that seeds vary more
    assert (found["low"], found["high"]) == pytest.approx((0.1 - T * SD / 3**0.5, 0.1 + T * SD / 3**0.5))
    assert table["variants"]["plain"]["minutes"]["value"] == pytest.approx(4 * 0.5)


def test_accuracy_has_an_interval_over_the_questions_of_all_seeds(table: dict[str, Any]) -> None:
    found = table["differences"]["sharp - plain"]["held_out"]
    over = found["same"]["accuracy"]["by_questions"]
    assert over == pytest.approx(asdict(OVER))
    # Points are not the mean of the questions' scores.
    assert found["points"]["accuracy"]["by_questions"] is None


def test_seeds_close_together_by_luck_do_not_narrow_the_interval(tmp_path: Path) -> None:
    folder = make_sweep(tmp_path / "lucky")
    (folder / "sweep.yaml").write_text((folder / "sweep.yaml").read_text().replace("- 1\n", ""))
    for seed in (0, 2):  # each gains four questions and loses three
        for variant, right in (("plain", {0, 1, 2}), ("sharp", {3, 4, 5, 6})):
            file = folder / variant / f"seed-{seed}/eval/same"
            rows = [json.loads(line) for line in (file / "items.jsonl").read_text().splitlines()]
            rows = [row | {"scores": [float(number in right)]} for number, row in enumerate(rows)]
            (file / "items.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
            results = json.loads((file / "results.json").read_text())
            (file / "results.json").write_text(json.dumps(results | {"score": {"score": len(right) / 10}}))
    found = sweep_table(folder)["differences"]["sharp - plain"]["held_out"]["same"]["accuracy"]
    assert (found["low"], found["high"]) == (None, None)
    over = found["by_questions"]
    assert over["low"] < -0.2 < 0.35 < over["high"]
    interval = f"[{100 * over['low']:.1f}, {100 * over['high']:.1f}]"
    assert found["shown"] > 1
    shown = vtune("report", folder).out
    assert f"sharp - plain: accuracy over its questions 10.0 {interval}" in shown
    latex = vtune("report", folder, "--latex").out
    assert "% sharp - plain, same: accuracy: the interval is over questions\n" in latex
    assert rf"10.0 {{\scriptsize {interval}}}" in latex
    row = next(
        row
        for row in csv.DictReader(io.StringIO(vtune("report", folder, "--csv").out))
        if row["kind"] == "difference" and (row["where"], row["number"]) == ("same", "accuracy")
    )
    assert float(row["low_by_questions"]) == pytest.approx(found["by_questions"]["low"])
    vtune("report", folder, "--figure", tmp_path / "lucky.svg")
    text = (tmp_path / "lucky.svg").read_text()
    assert f"+10.0 {interval} over questions" in text
    assert "grey: over questions" in text
    assert "wider than over seeds" not in shown, "there is none over seeds"


def test_an_evaluation_without_questions_has_no_interval_over_them(folder: Path) -> None:
    (folder / "plain/seed-1/eval/same/items.jsonl").unlink()
    found = sweep_table(folder)["differences"]["sharp - plain"]["held_out"]["same"]["accuracy"]
    assert found["by_questions"] is None
    assert found["value"] == pytest.approx(0.1)


def test_shares_are_in_percent_points_are_not_and_zeros_have_no_column(table: dict[str, Any]) -> None:
    tables = titled(table)
    same, points = tables["held out: same"], tables["held out: points"]
    assert same["head"] == ["", "seeds", "accuracy, %", "faithful, %", "faithful of right, %"]
    assert same["rows"][0][2] == "60.0 [35.2, 84.8]"
    assert points["head"][2] == "accuracy"
    assert points["rows"][0][2] == "60 [35.2, 84.8]"
    assert tables["differences, seed by seed: same"]["head"][2] == "accuracy, points"
    assert tables["training; mean of the last 2 steps"]["head"] == ["", "seeds", "accuracy, %", "entropy"]
    assert tables["training; all steps"]["head"][2:] == ["accuracy, all steps, %", "minutes"]


def test_the_detectable_difference_is_shown_below(table: dict[str, Any]) -> None:
    *_, last = plain_tables(table)
    assert "80 of 100" in last["title"]
    assert last["head"] == ["", "seeds", "training", "same", "points"]
    assert SHOWN is not None
    # Training and faithful answers differ by the same amount in all seeds.
    numbers = "–", f"{100 * SHOWN:.1f}", f"{100 * shown_by_seeds(3) * SD:.3g}"
    assert last["rows"] == [["sharp - plain: accuracy", "3", *numbers]]


def test_one_seed_could_show_nothing(tmp_path: Path) -> None:
    folder = make_sweep(tmp_path / "one")
    (folder / "sweep.yaml").write_text((folder / "sweep.yaml").read_text().replace("- 1\n- 2\n", ""))
    table = sweep_table(folder)
    found = table["differences"]["sharp - plain"]["held_out"]["same"]["accuracy"]
    assert (found["n"], found["low"], found["shown"]) == (1, None, None)
    assert not any("80 of 100" in title for title in titled(table))
    assert vtune("report", folder, "--figure", tmp_path / "one.svg").code == 0
    over = found["by_questions"]
    notes = [one["note"] for one in plain_tables(table) if one["note"]]
    interval = f"[{100 * over['low']:.1f}, {100 * over['high']:.1f}]"
    assert notes == [f"sharp - plain: accuracy over its questions 10.0 {interval}"]


def test_differences_are_plotted_in_percentage_points(table: dict[str, Any]) -> None:
    drawn = {one["title"]: one for one in effects(table)}
    assert list(drawn) == ["same: accuracy", "same: faithful", "points: accuracy", "points: faithful"]
    (row,) = drawn["same: accuracy"]["rows"]
    assert (drawn["same: accuracy"]["unit"], row["name"]) == ("points", "sharp - plain")
    assert row["values"] == pytest.approx([10, 0, 20])
    (row,) = drawn["points: accuracy"]["rows"]
    assert (drawn["points: accuracy"]["unit"], row["values"]) == ("", pytest.approx([10, 0, 20]))


def test_intervals_end_at_their_values(folder: Path, tmp_path: Path) -> None:
    vtune("report", folder, "--figure", tmp_path / "sweep.svg")
    lines = re.findall(r'style="(fill: none; stroke[^"]+)"', (tmp_path / "sweep.svg").read_text())
    # The frame of a panel, whose corners are joined like this, is not an interval.
    lines = [line for line in lines if "miter" not in line]
    assert lines
    assert not any("square" in line for line in lines)


def test_a_csv_has_every_number(folder: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(vtune("report", folder, "--csv").out)))
    (row,) = [
        row
        for row in rows
        if (row["kind"], row["where"], row["number"]) == ("difference", "same", "accuracy")
    ]
    assert (row["sweep"], row["name"], row["n"]) == ("swept", "sharp - plain", "3")
    assert [float(value) for value in row["values"].split()] == pytest.approx([0.1, 0.0, 0.2])
    assert float(row["shown"]) == pytest.approx(SHOWN)
    assert {row["where"] for row in rows} == {"training", "same", "points"}


def test_csv_and_latex_tables_say_what_the_sweep_lacks(folder: Path) -> None:
    assert vtune("report", folder, "--csv").err == ""
    (folder / "plain/seed-1/eval/same/results.json").unlink()
    said = "not finished: plain/seed-1/eval/same"
    assert vtune("report", folder, "--csv").err == f"swept: {said}\n"
    assert f"% {said}\n" in vtune("report", folder, "--latex").out


def test_a_latex_table_has_variants_a_rule_and_differences(folder: Path) -> None:
    lines = vtune("report", folder, "--latex").out.splitlines()
    names = [line.split(" ")[0] for line in lines[lines.index(r"\midrule") :]]
    assert names == [r"\midrule", "plain", "sharp", r"\midrule", "sharp", r"\bottomrule", r"\end{tabular}"]
    assert r"60.0 {\scriptsize [35.2, 84.8]}" in "".join(lines)


def test_a_table_is_of_one_kind_of_folder(folder: Path) -> None:
    ended = vtune("report", folder, folder / "plain/seed-0/eval/same", "--csv")
    assert (ended.code, ended.out) == (2, "")
    assert "no columns in common" in ended.err


def test_a_curve_is_the_running_mean_over_seeds_with_minimum_and_maximum(folder: Path) -> None:
    curves = sweep_curves(folder, sweep_table(folder))
    assert list(curves) == ["accuracy", "entropy"]  # no tool was called
    curve = curves["accuracy"]["plain"]
    assert list(curve.steps) == [0, 1, 2, 3]
    # Seed 1 of three at steps 0 to 3: 0.1, 0.2, 0.3, 0.4; each averaged with the one before it.
    assert list(curve.mean) == pytest.approx([0.1, 0.15, 0.25, 0.35])
    assert list(curve.low) == pytest.approx([0.0, 0.05, 0.15, 0.25])
    assert list(curve.high) == pytest.approx([0.2, 0.25, 0.35, 0.45])


@pytest.mark.parametrize("part", ["vision", "connector"])
def test_gradients_are_plotted_if_variants_train_different_parts(tmp_path: Path, part: str) -> None:
    alike = {"grad_norm_language": 0.5}
    folder = make_sweep(tmp_path / "parts", plain=alike, sharp=alike | {f"grad_norm_{part}": 0.25})
    curves = sweep_curves(folder, sweep_table(folder))
    assert set(curves[f"gradient norm, {part}"]) == {"sharp"}
    assert set(curves["gradient norm, language"]) == {"plain", "sharp"}
    same = make_sweep(tmp_path / "same", plain=alike, sharp=alike)
    assert not any("gradient" in title for title in sweep_curves(same, sweep_table(same)))


def test_a_figure_contains_its_texts_and_is_reproducible(folder: Path, tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("one.svg", "two.svg")]
    for file in files:
        told = json.loads(vtune("report", folder, "--figure", file, "--json").out)
        assert told["curves"] == ["accuracy", "entropy"]
    assert files[0].read_bytes() == files[1].read_bytes()
    text = files[0].read_text()
    for word in ("same: accuracy", "sharp - plain", "+10.0 [-14.8, 34.8]", "step (mean of 2)"):
        assert word in text


@pytest.mark.parametrize(("ending", "begins"), [("pdf", b"%PDF"), ("PNG", b"\x89PNG")])
def test_the_suffix_sets_a_figures_format(folder: Path, tmp_path: Path, ending: str, begins: bytes) -> None:
    file = tmp_path / f"figure.{ending}"
    assert vtune("report", folder, "--figure", file).code == 0
    assert file.read_bytes().startswith(begins)
    if ending == "PNG":
        assert Image.open(file).size[0] > 1000


@pytest.mark.parametrize(
    ("of", "name", "why"),
    [
        ("", "figure.gif", "does not have the ending of a picture"),
        ("plain/seed-0", "figure.svg", "shows one sweep"),
        ("", "sweep.yaml/figure.svg", "is a file, not a folder"),
    ],
)
def test_an_unknown_figure_format_is_an_error(folder: Path, of: str, name: str, why: str) -> None:
    ended = vtune("report", folder / of, "--figure", folder / name)
    assert ended.code == 2
    assert why in ended.err
    assert "fix" in ended.err


def test_nothing_finished_is_an_error(folder: Path, tmp_path: Path) -> None:
    for file in folder.glob("*/*/done.json"):
        file.unlink()
    ended = vtune("report", folder, "--figure", tmp_path / "figure.svg")
    assert ended.code == 2
    assert "no run is finished yet" in ended.err
    assert not (tmp_path / "figure.svg").exists()


def test_numbers_from_fewer_runs_state_how_many(folder: Path) -> None:
    (folder / "sharp/seed-2/eval/same/results.json").unlink()
    table = sweep_table(folder)
    *_, last = plain_tables(table)
    assert last["rows"][0][3].endswith(" (of 2)")
    latex = vtune("report", folder, "--latex").out
    assert "% sharp, same: accuracy: of 2\n" in latex
    assert "% not finished: sharp/seed-2/eval/same\n" in latex
    told = json.loads(vtune("report", folder, "--figure", folder.parent / "some.svg", "--json").out)
    assert told["unfinished"] == ["sharp/seed-2/eval/same"]


def test_seeds_that_do_not_vary_show_nothing(tmp_path: Path) -> None:
    folder = make_sweep(tmp_path / "alike")
    for variant in ("plain", "sharp"):
        for seed in range(3):
            file = folder / variant / f"seed-{seed}/eval/points/results.json"
            file.write_text(json.dumps(json.loads(file.read_text()) | {"score": {"score": 50.0}}))
    found = sweep_table(folder)["differences"]["sharp - plain"]["held_out"]["points"]["accuracy"]
    assert (found["value"], found["shown"]) == (0, None)


def test_points_keep_their_digits(tmp_path: Path) -> None:
    folder = make_sweep(tmp_path / "many")
    for seed in range(3):
        file = folder / f"plain/seed-{seed}/eval/points/results.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"score": {"score": 1237.4 + seed}}))
    assert titled(sweep_table(folder))["held out: points"]["rows"][0][2] == "1238.4 [1235.9, 1240.9]"


def test_a_curve_ends_at_the_tables_last_step(tmp_path: Path) -> None:
    folder = make_sweep(tmp_path / "gaps", plain={"iou@99": 0.5})
    for file in folder.glob("plain/*/metrics.jsonl"):
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        for row in rows:
            if row["step"] == 2:
                del row["iou@99"]
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    table = sweep_table(folder)
    curve = sweep_curves(folder, table)["IoU@99"]["plain"]
    assert list(curve.steps) == [0, 1, 2, 3]
    assert curve.mean[-1] == pytest.approx(table["variants"]["plain"]["iou@99"]["value"])


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("sweep.yaml", lambda text: text.replace("differences:\n- - sharp\n  - plain\n", "")),
        ("sweep.yaml", lambda text: text + "untrained: null\naxes: null\n"),
        ("sweep.yaml", lambda text: text.replace("  name: same\n", "")),
    ],
)
def test_a_folder_of_an_older_sweep_is_read(folder: Path, file: str, change: Callable[[str], str]) -> None:
    before = (folder / file).read_text()
    (folder / file).write_text(change(before))
    assert (folder / file).read_text() != before
    assert vtune("report", folder).code == 0


@pytest.mark.parametrize("key", ["score", "faithfulness"])
def test_broken_results_are_named(folder: Path, key: str) -> None:
    file = folder / "plain/seed-0/eval/same/results.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {key: None}))
    ended = vtune("report", folder)
    assert ended.code == 2
    assert "results.json" in ended.err
    assert "results.json" in sweeps_of([folder])[0]["problem"]


def test_a_page_shows_a_sweeps_results(folder: Path, tmp_path: Path) -> None:
    assert vtune("report", folder, "--html", tmp_path / "page.html").code == 0
    values: Any = held(tmp_path / "page.html")
    assert values["sweeps"] == json.loads(json.dumps(sweeps_of([folder])))
    (one,) = values["sweeps"]
    assert (one["name"], one["problem"], one["unfinished"]) == ("swept", "", [])
    assert [table["title"] for table in one["tables"]] == list(titled(sweep_table(folder)))
    client = TestClient(app_of([], "token", [folder]), base_url="http://127.0.0.1:8195/token/")
    assert client.get("api/sweeps").json() == values["sweeps"]


def test_a_folder_means_the_sweeps_in_it(folder: Path) -> None:
    make_sweep(folder.parent / "other")
    report: Any = run_report([folder.parent])
    assert [one["name"] for one in report["sweeps"]] == ["other", "swept"]
    assert report["runs"] == report["evaluations"] == []
    assert [place.name for place in find_places(folder.parent)] == [
        f"{sweep}/{variant}/seed-{seed}"
        for sweep in ("swept", "other")
        for variant in ("plain", "sharp")
        for seed in range(3)
    ]
    (folder.parent / "other/sweep.yaml").write_text("{}")
    left: Any = run_report([folder.parent])
    assert [one["name"] for one in left["sweeps"]] == ["swept"]
    other = folder.parent / "other"
    assert left["unreadable"] == {str(other): f"not the settings of a sweep ({other / 'sweep.yaml'})"}
    shown = vtune("report", folder.parent)
    assert f"left out: {folder.parent / 'other'}: not the settings of a sweep" in shown.out
    assert vtune("report", folder.parent / "other").code == 2
    table = vtune("report", folder.parent, "--csv")  # a table omits nothing silently
    assert (table.code, table.out) == (2, "")
    assert "not the settings of a sweep" in table.err
    shutil.rmtree(folder.parent / "other")
    make_sweep(folder.parent / "other")
    (folder / "prepared/seed-0/start").mkdir(parents=True)
    (folder / "prepared/seed-0/start/recipe.yaml").write_text("epochs: 1\n")
    assert not any("prepared" in place.name for place in find_places(folder))
    page = folder.parent / "page.html"
    assert vtune("report", folder.parent, "--html", page).code == 0
    values: Any = held(page)
    assert [one["name"] for one in values["sweeps"]] == ["other", "swept"]


def test_sweeps_are_found_in_the_folder_that_holds_them(folder: Path) -> None:
    assert sweeps_in([folder, folder]) == [folder]
    assert sweeps_in([folder.parent]) == [folder]
    assert sweeps_in([folder / "plain", folder / "plain/seed-0/metrics.jsonl"]) == []


def test_a_damaged_sweep_says_so_on_its_page(folder: Path) -> None:
    (folder / "plain/seed-0/metrics.jsonl").write_text("broken\n{}\n")
    (one,) = sweeps_of([folder])
    assert "metrics.jsonl" in one["problem"]
    assert (one["tables"], one["effects"]) == ([], [])


def test_no_unmeasured_interval_appears_in_a_sweeps_texts(table: dict[str, Any]) -> None:
    for one in plain_tables(table):
        assert all(len(row) == len(one["head"]) for row in one["rows"])
        assert not re.search(r"nan|None", json.dumps(one))
