import csv
import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from vtune.errors import DataError
from vtune.report.evaluation import render_evaluations, render_several
from vtune.report.evaluations_table import COLUMNS, evaluations_csv, evaluations_latex
from vtune.report.tabular import LOOKS
from vtune.schema.audit import keep_audit, read_audit

SHARE = {"value": 0.5, "low": 0.25, "high": 0.75}


def evaluation(name: str, score: float = 0.5) -> dict[str, Any]:
    return {
        "name": name,
        "path": f"runs/{name}",
        "model": "a_model",
        "samples": 8,
        "score": {"score": score, "intervals": {"score": SHARE | {"value": score}}},
        "sources": {
            "all": {"trajectories": 8, "accuracy": 0.5},
            "charts": {"trajectories": 3, "accuracy": 0.0, "tool_calls": 1.5},
            "lens": {"trajectories": 5, "accuracy": 0.8, "intervals": {"accuracy": SHARE}},
        },
        "faithfulness": {
            "n": 8,
            "clusters": 4,
            "accuracy": SHARE,
            "faithful_of_correct": None,
            "faithful_of_all": SHARE,
            "tool_calls": {"value": 1.25, "low": None, "high": None},
        },
        "judged_by": {"boxes": 8},
    }


def test_csv_has_a_line_per_evaluation_and_source() -> None:
    text = evaluations_csv([evaluation("before"), evaluation("after", 0.75)])
    rows = {row["evaluation"]: row for row in csv.DictReader(io.StringIO(text))}
    assert list(rows) == [
        *("before", "before: charts", "before: lens"),
        *("after", "after: charts", "after: lens"),
    ]
    assert (rows["after"]["score"], rows["after"]["score_low"]) == ("0.75", "0.25")
    assert (rows["after"]["n"], rows["after"]["clusters"]) == ("8", "4")
    assert rows["after"]["faithful_of_correct"] == rows["after"]["unfaithful_of_all"] == ""
    charts, lens = rows["before: charts"], rows["before: lens"]
    assert (charts["n"], charts["accuracy"], charts["accuracy_low"]) == ("3", "0.0", "")
    assert (lens["accuracy"], lens["accuracy_high"]) == ("0.5", "0.75")


def test_csv_has_the_parts_of_a_score_and_numbers_over_rollouts() -> None:
    one, other = evaluation("one"), evaluation("other")
    one["sources"] = {"all": one["sources"]["all"]}
    part = {"score": 0.5, "intervals": {"score": SHARE}, "n": 4, "clusters": 3, "unscored": 1}
    one["score"] |= {"categories": {"colour": part, "place": part | {"score": None, "intervals": {}}}}
    one["repeated"] = {"avg@2": SHARE, "pass@1": SHARE, "pass@2": None, "unscored": 0}
    rows = {row["evaluation"]: row for row in csv.DictReader(io.StringIO(evaluations_csv([one, other])))}
    assert list(rows)[:4] == ["one", "one: categories.colour", "one: categories.place", "other"]
    colour, place = rows["one: categories.colour"], rows["one: categories.place"]
    assert [colour[key] for key in ("n", "clusters", "unscored", "score", "score_low")] == [
        *("3", "3", "1", "0.5", "0.25")
    ]
    assert (place["score"], place["accuracy"]) == ("", "")
    assert (rows["one"]["pass@1"], rows["one"]["avg@2_high"], rows["one"]["pass@2"]) == ("0.5", "0.75", "")
    assert rows["other"]["pass@1"] == ""
    assert "pass@1" not in evaluations_csv([other])


def test_a_source_with_its_own_score_is_one_line() -> None:
    one = evaluation("one")
    one["score"] |= {"sources": {"lens": {"score": 0.25, "intervals": {}, "n": 5, "clusters": 5}}}
    rows = {row["evaluation"]: row for row in csv.DictReader(io.StringIO(evaluations_csv([one])))}
    assert list(rows) == ["one", "one: charts", "one: lens"]
    assert (rows["one: lens"]["score"], rows["one: lens"]["accuracy"]) == ("0.25", "0.5")


def test_latex_has_a_row_per_evaluation_and_says_who_judged_the_looks() -> None:
    text = evaluations_latex([evaluation("before"), evaluation("after_50%", 0.75)])
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert [row.partition(" & ")[0] for row in rows] == ["", "before", r"after\_50\%"]
    assert {row.count(" & ") for row in rows} == {len(COLUMNS) + 1}
    assert r"75.0 {\scriptsize [25.0, 75.0]}" in rows[2]
    comments = [line for line in text.splitlines() if line.startswith("%")]
    assert "% before: a_model on 8 samples (runs/before)" in comments
    assert any("by boxes" in line for line in comments)


def test_latex_says_why_there_are_no_shares_of_looks() -> None:
    blind = evaluation("blind")
    blind["faithfulness"] |= {"no_shares": "3 of 3 trajectories could not be audited: no evidence boxes"}
    text = evaluations_latex([evaluation("before"), blind])
    assert "% blind: 3 of 3 trajectories could not be audited: no evidence boxes\n" in text


def test_points_are_not_percent() -> None:
    assert " 1234.50 " in evaluations_latex([evaluation("mme", 1234.5)])


def printed(one: dict[str, Any]) -> str:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(render_evaluations([one]))
    return console.export_text()


def test_several_suites_are_one_table_with_a_row_each_and_no_source() -> None:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(render_several([evaluation(name) | {"limit": None} for name in ("vstar", "mmmu")]))
    lines = console.export_text().splitlines()
    assert [line.split()[1] for line in lines if line.startswith("│")] == ["vstar", "mmmu"]
    assert "source: " not in "\n".join(lines)
    assert lines[-1].startswith("`vtune report runs/vstar --all` shows")


def test_without_questions_that_need_a_look_there_is_no_looks_table() -> None:
    one = evaluation("mazes") | {"limit": None, "unaudited": 0.0}
    assert "faithful_of_all" in printed(one)
    one["faithfulness"] |= {"n": 0, "clusters": 0}
    assert "faithful_of_all" not in printed(one)
    assert "unaudited" in printed(one | {"unaudited": 0.5})
    one["faithfulness"] |= {"n_unscored": 5}
    assert "n_unscored" in printed(one)


def test_an_evaluation_without_looks_still_counts_its_answers() -> None:
    one = evaluation("shapes")
    one["score"] |= {"n": 8, "clusters": 6}
    one["faithfulness"] |= {"n": 0, "clusters": 0}
    row = next(csv.DictReader(io.StringIO(evaluations_csv([one]))))
    assert (row["n"], row["clusters"]) == ("8", "6")
    assert "shapes & 8 & 50.0 " in evaluations_latex([one])


def test_looks_at_other_answers_than_the_scored_ones_are_noted() -> None:
    one = evaluation("mixed")
    one["score"] |= {"n": 9, "clusters": 9}
    assert (
        "% mixed: only the score covers more than the 8 answers to questions that need a look"
        in evaluations_latex([one])
    )
    rows = list(csv.DictReader(io.StringIO(evaluations_csv([one]))))
    assert [(row["n"], row["n_looks"]) for row in rows] == [("9", "8"), ("3", "3"), ("5", "5")]


def test_a_score_missing_for_unscored_parts_names_them() -> None:
    one = evaluation("benchmarks")
    one |= {"limit": None, "unaudited": 0.0}
    one["score"] = {"unscored_parts": ["charts", "maps"], "n": 8, "unscored": 3}
    text = printed(one)
    assert "the mean over parts is missing: nothing was scored in charts, maps" in text
    assert "unscored_parts" not in text


def test_unscored_answers_are_noted_and_not_counted() -> None:
    one = evaluation("lame")
    one["score"] |= {"n": 12, "clusters": 11, "unscored": 1}
    row = next(csv.DictReader(io.StringIO(evaluations_csv([one]))))
    assert (row["n"], row["clusters"], row["unscored"]) == ("11", "11", "1")
    text = evaluations_latex([one])
    assert "lame & 11 & 50.0 " in text
    assert "% lame: 1 of 12 answers had no score and are left out\n" in text


@pytest.mark.parametrize(
    ("gives", "counts"),
    [
        ({"unscored": 3}, ("8", "4", "3")),
        ({"n": {"a": 1}}, ("8", "4", "")),
        ({"n": 12, "unscored": 3, "clusters": "all"}, ("12", "4", "3")),
        ({"n": 12, "unscored": {"a": 3}}, ("12", "4", "")),
    ],
)
def test_a_custom_scorer_may_report_any_counts(gives: dict[str, Any], counts: tuple[str, str, str]) -> None:
    one = evaluation("own") | {"suite": {"scorer": "mine"}, "score": {"score": 0.4} | gives}
    row = next(csv.DictReader(io.StringIO(evaluations_csv([one]))))
    assert (row["score"], row["n"], row["clusters"], row["unscored"]) == ("0.4", *counts)
    text = evaluations_latex([one])
    assert f"own & {counts[0]} & 40.0 " in text
    assert "had no score" not in text


def test_tables_state_the_number_of_questions_behind_rollout_numbers() -> None:
    one, other = evaluation("one"), evaluation("other")
    one["repeated"] = {"avg@2": SHARE, "pass@1": SHARE, "pass@2": SHARE | {"n": 3}, "unscored": 0}
    other["repeated"] = {"avg@2": SHARE, "pass@1": SHARE, "pass@2": SHARE, "unscored": 0}
    rows = {row["evaluation"]: row for row in csv.DictReader(io.StringIO(evaluations_csv([one, other])))}
    assert (rows["one"]["n_pass@2"], rows["other"]["n_pass@2"], "n_pass@1" in rows["one"]) == ("3", "", False)
    one |= {"limit": None, "unaudited": 0}
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(render_evaluations([one]))
    (line,) = (line for line in console.export_text().splitlines() if "pass@2, questions" in line)
    assert line.split()[-2] == "3"


def test_tables_have_the_shares_of_the_last_audit_and_who_judged() -> None:
    one, other = evaluation("one"), evaluation("other")
    why = "8 of 8 trajectories with tool calls could not be audited"
    for each in (one, other):
        each["judged_by"] = {"boxes": 0, "model": 0}
        each["faithfulness"] = {"n": 8, "clusters": 4, "accuracy": SHARE, "no_shares": why}
        each["score"] |= {"n": 8, "clusters": 4}
    found = {column.name: SHARE | {"value": 0.25} for column in LOOKS} | {"n": 6, "clusters": 3}
    lens = found | {"n": 2}
    note, by = "by jl; CodeV's Table 5 is by GPT-4o", {"boxes": 0, "model": 6}
    one["audit"] = {"all": found, "sources": {"lens": lens}, "judged_by": by, "note": note}
    rows = {row["evaluation"]: row for row in csv.DictReader(io.StringIO(evaluations_csv([one, other])))}
    cells = ("n", "n_looks", "accuracy", "faithful_of_all", "looks_by")
    assert [rows["one"][key] for key in cells] == ["8", "6", "0.25", "0.25", note]
    assert [rows["one: lens"][key] for key in cells] == ["5", "2", "0.25", "0.25", note]
    assert [rows["one: charts"][key] for key in cells] == ["3", "3", "0.0", "", ""]
    assert [rows["other: lens"][key] for key in cells] == ["5", "5", "0.5", "", ""]
    text = evaluations_latex([one, other])
    assert f"% one: looks as found by `vtune faithfulness`: {note}" in text
    assert [line for line in text.splitlines() if why in line] == [f"% other: {why}"]
    one["audit"] = {"all": {}, "sources": {}}
    with pytest.raises(DataError, match="not what an audit has found"):
        evaluations_csv([one])


def test_an_older_audit_without_a_number_still_shows_the_others(tmp_path: Path) -> None:
    one = evaluation("one")
    found: dict[str, Any] = {
        column.name: SHARE | {"value": 0.25} for column in LOOKS if column.name != "faithful_by_chance"
    }
    found |= {"n": 6, "clusters": 3}
    keep_audit(
        tmp_path, {"all": found, "sources": {"lens": found}, "judged_by": {"model": 6}, "note": "by jl"}
    )
    one["audit"] = read_audit(tmp_path)
    rows = {row["evaluation"]: row for row in csv.DictReader(io.StringIO(evaluations_csv([one])))}
    for name in ("one", "one: lens"):
        assert (rows[name]["faithful_of_all"], rows[name]["faithful_by_chance"]) == ("0.25", "")
    assert "25.0 " in evaluations_latex([one])
    del found["accuracy"]
    one["audit"] = read_audit(tmp_path) | {"sources": {"lens": found}}
    with pytest.raises(DataError, match=r"not what an audit has found: KeyError\('accuracy'\)"):
        evaluations_csv([one])
