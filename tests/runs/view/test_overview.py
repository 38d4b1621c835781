import json
import os
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from tests.runs.view.test_serving import HERE, TOKEN
from tests.view.runs import LOOKED, MISSED, UNSCORED, make_run
from vtune.config import read_values, shipped
from vtune.metrics.by_source import by_source
from vtune.report.counterfactual import CELLS, COLUMNS
from vtune.runs.view.films import film, films
from vtune.runs.view.habits import by_query, by_sample, calls_by_tool, flags_by_step
from vtune.runs.view.headline import headline
from vtune.runs.view.opened import Opened
from vtune.runs.view.overview import overview
from vtune.runs.view.reported import reported_rows
from vtune.runs.view.serving import app_of
from vtune.schema.parquet import write_trajectories
from vtune.schema.trajectory import Trajectory
from vtune.view.place import find_places


def opened(path: Path) -> Opened:
    (place,) = find_places(path)
    return Opened(place, show=False)


def table_of(drawn: list[Trajectory]) -> pa.Table:
    """The fact table of trajectories."""
    with TemporaryDirectory() as folder:
        return opened(make_run(Path(folder) / "run", {0: drawn})).index.table.combine_chunks()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run", {0: [MISSED, UNSCORED], 4: [LOOKED, MISSED]})


def test_the_headline_compares_the_first_step_with_the_last(run: Path) -> None:
    found = headline(opened(run).index.table)
    rows = {row["name"]: row for row in found["rows"]}
    assert found["of"].startswith("step 0 → step 4")
    assert (rows["right"]["first"]["value"], rows["right"]["last"]["value"]) == (0.0, 0.5)
    assert rows["right"]["first"]["n"] == 1  # the other one is unscored
    assert (rows["faithful, of the right"]["first"], rows["faithful, of the right"]["last"]["value"]) == (
        None,
        1.0,
    )
    assert rows["right"]["last"]["low"] < 0.5 < rows["right"]["last"]["high"]


def test_a_right_box_below_full_marks_is_not_called_accuracy() -> None:
    assert LOOKED.reward is not None
    loose = replace(LOOKED, reward=replace(LOOKED.reward, accuracy=0.8))
    assert by_source([loose], evidence_score=1.0)["all"]["accuracy"] == 0
    rows = {row["name"]: row for row in headline(table_of([loose]))["rows"]}
    assert "accuracy" not in rows
    assert rows["right"]["last"]["value"] == 1


def test_a_headline_omits_unjudged_looks() -> None:
    # The tool part has no weight: of a model only what cost nothing is known, no call and red flags.
    unasked = replace(LOOKED, tool_scores=(None,))
    without = replace(LOOKED, calls=(), tool_scores=(), call_advantages=())
    named = ["right and faithful, of all", "faithful, of the right"]

    def told(drawn: list[Trajectory]) -> tuple[dict[str, float], bool]:
        found = headline(table_of(drawn))
        return {row["name"]: row["last"]["value"] for row in found["rows"]}, "too few" in found["of"]

    rows, why = told([unasked, unasked, without, MISSED, MISSED, MISSED])
    assert (rows["right"], why) == (0.5, True)
    assert not rows.keys() & set(named)
    # If the judge was down for a few, these are left out.
    down = replace(unasked, reward=replace(LOOKED.reward, total=None))
    rows, why = told([down, LOOKED, without, MISSED])
    assert (rows[named[0]], rows[named[1]], why) == (pytest.approx(1 / 3), 0.5, False)
    rows, why = told([down, down, down, LOOKED, MISSED, without])
    assert (rows.keys() & set(named), why) == (set(), True)


def test_a_headlines_shares_of_looks_exclude_questions_that_need_none() -> None:
    acted = replace(LOOKED, tool_scores=(None,), needs_look=False)
    still = replace(acted, calls=(), tool_scores=(), call_advantages=())
    found = headline(table_of([acted, still]))
    assert "whose questions need no look" in found["of"]
    assert [row["name"] for row in found["rows"]] == ["right", "reward", "tool calls", "with a red flag"]
    found = headline(table_of([acted, acted, still, LOOKED, MISSED]))
    rows = {row["name"]: row["last"] for row in found["rows"]}
    assert (rows["right and faithful, of all"]["value"], rows["right and faithful, of all"]["n"]) == (0.5, 2)


def test_runs_with_different_custom_parts_are_separate_lines(tmp_path: Path) -> None:
    lines = []
    for seed, content in enumerate(("aa", "aa", "bb")):
        run = make_run(tmp_path / f"run{seed}", {})
        (run / "recipe.yaml").write_text(f"seed: {seed}\nuses: [uses/mine.py]\n")
        (run / "environment.json").write_text(json.dumps({"uses": {"mine.py": content}}))
        lines.append(overview(opened(run))["line"])
    assert lines[0] == lines[1] != lines[2]


def test_a_run_without_trajectories_still_has_curves(tmp_path: Path) -> None:
    found = overview(opened(make_run(tmp_path / "run", {})))
    assert found["headline"]["rows"] == []


def test_a_run_has_curves_recipe_and_funnel(run: Path, tmp_path: Path) -> None:
    data = tmp_path / "curated"
    data.mkdir()
    funnel = {"lens": {"before": 9, "valid": 8, "after": 8}, "all": {"before": 9, "valid": 8, "after": 8}}
    (data / "curation.json").write_text(json.dumps({"result": {"funnel": funnel}}))
    (run / "recipe.yaml").write_text(
        f"steps: 5\nseed: 3\ndata: [{data / 'samples.parquet'}]\nrollout: {{temperature: 1.0}}\n"
    )
    found = overview(opened(run))
    assert found["sources"]["lens"]["reward"] == {"steps": [0, 4], "values": [0.0, 0.4]}
    assert [chart["title"] for chart in found["charts"]] == ["reward", "accuracy"]
    assert found["steps_done"] == 5
    assert (found["recipe"]["rollout.temperature"], found["seed"], found["total_steps"]) == ("1", 3, 5)
    (table,) = found["funnels"]
    assert (table["head"], table["rows"][0]) == (
        ["source", "before", "valid", "after"],
        ["lens", "9", "8", "8"],
    )
    json.dumps(found, allow_nan=False)


def test_the_page_of_a_run_by_epochs_says_how_many_steps_it_has(run: Path) -> None:
    (run / "recipe.yaml").write_text("epochs: 3.0\nsteps: null\n")
    (run / "environment.json").write_text(json.dumps({"steps": 12}))
    assert overview(opened(run))["total_steps"] == 12


def test_runs_that_differ_only_in_the_seed_are_one_line(tmp_path: Path) -> None:
    texts = ("steps: 2\nseed: 0\n", "steps: 2\nseed: 1\n", "steps: 3\nseed: 0\n")
    lines = []
    for number, text in enumerate(texts):
        run = make_run(tmp_path / f"run{number}", {0: [LOOKED]})
        (run / "recipe.yaml").write_text(text)
        lines.append(overview(opened(run))["line"])
    assert lines[0] == lines[1] != lines[2]


def test_folders_prepared_per_seed_do_not_split_the_line(tmp_path: Path) -> None:
    lines = []
    for number, (seed, prepared) in enumerate([(0, "seed-0"), (1, "seed-1"), (2, "seed-0")]):
        run = make_run(tmp_path / f"run{number}", {0: [LOOKED]})
        (run / "recipe.yaml").write_text(f"data: [out/prepared/{prepared}/train.parquet]\nseed: {seed}\n")
        lines.append(overview(opened(run))["line"])
    assert lines[0] == lines[1] != lines[2]


@pytest.mark.parametrize(
    ("file", "text"),
    [("metrics.jsonl", '{"step": 0'), ("recipe.yaml", "{"), ("environment.json", "nothing")],
)
def test_a_damaged_run_says_so_and_keeps_its_headline(run: Path, file: str, text: str) -> None:
    (run / file).write_text(text + "\n" + text)
    found = overview(opened(run))
    assert file in found["problem"]
    assert (found["sources"], found["funnels"]) == ({}, [])
    assert found["headline"]["rows"]


def test_an_invalid_funnel_is_a_problem_of_its_run(run: Path, tmp_path: Path) -> None:
    (tmp_path / "curation.json").write_text('{"result": {}}')
    (run / "recipe.yaml").write_text(f"data: [{tmp_path / 'samples.parquet'}]\n")
    assert "not the funnel of a curation" in overview(opened(run))["problem"]


def test_the_tool_with_the_most_errors_comes_first() -> None:
    zoom, lost = (replace(LOOKED.calls[0], tool="zoom", status=status) for status in ("ok", "timeout"))
    zoomed = replace(LOOKED, calls=(zoom, lost), tool_scores=(), call_advantages=())
    drawn = [LOOKED] * 3 + [MISSED, zoomed]
    table = calls_by_tool(table_of(drawn))
    assert table is not None
    assert table["head"] == ["tool", "calls", "ok", "error", "timeout"]
    assert table["rows"] == [
        ["zoom", "2", "1 (50.0 %)", "0", "1 (50.0 %)"],
        ["python", "4", "3 (75.0 %)", "1 (25.0 %)", "0"],
    ]
    assert calls_by_tool(table_of([UNSCORED])) is None


def test_red_flags_are_counted_by_trajectory_at_the_first_and_last_step(tmp_path: Path) -> None:
    twice = replace(MISSED.calls[0], flags=("whole_image", "repeated_crop"))
    repeated = replace(MISSED, calls=(twice, twice), tool_scores=(), call_advantages=())
    steps = {0: [MISSED, MISSED, LOOKED, repeated], 4: [MISSED], 8: [repeated, LOOKED]}
    table = flags_by_step(opened(make_run(tmp_path / "run", steps)).index.table)
    assert table is not None
    assert table["head"] == ["flag", "step 0", "step 8", "all"]
    assert table["rows"] == [
        ["whole_image", "3 (75.0 %)", "1 (50.0 %)", "5 (71.4 %)"],
        ["repeated_crop", "1 (25.0 %)", "1 (50.0 %)", "2 (28.6 %)"],
    ]
    only = flags_by_step(table_of([MISSED]))
    assert only is not None
    assert only["head"] == ["flag", "all"]
    assert flags_by_step(table_of([LOOKED])) is None


def test_common_queries_are_counted_over_all_trajectories() -> None:
    lucky = replace(LOOKED, tool_scores=(0.0,))
    read_wrong = replace(MISSED, tool_scores=(1.0,))
    found = by_query(table_of([LOOKED, lucky, lucky, read_wrong, UNSCORED]))
    assert [one["found"] for one in found] == [2, 1, 1, 1]


def test_samples_that_are_never_right_are_named_if_sampled_more_than_once() -> None:
    drawn = [LOOKED, MISSED, *(replace(MISSED, sample_id=f"lens/{n}") for n in (1, 2, 2, 3, 3, 3)), UNSCORED]
    found = by_sample(table_of([*drawn, *[replace(LOOKED, sample_id="lens/9")] * 2]))
    assert found is not None
    rows = found.pop("rows")
    assert found == {"samples": 4, "always": 1, "sometimes": 1, "never": 2}
    assert [(row["sample"], row["scored"]) for row in rows] == [("lens/3", 3), ("lens/2", 2)]
    assert by_sample(table_of([LOOKED, UNSCORED])) is None


def test_unreadable_results_are_a_problem_of_their_evaluation(tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").touch()
    (tmp_path / "results.json").write_text("[]")
    assert "results.json" in overview(opened(tmp_path))["problem"]


def test_the_page_of_an_unfinished_evaluation_shows_its_progress(tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").touch()
    write_trajectories(tmp_path / "trajectories" / "from-00000000.parquet", [LOOKED, UNSCORED])
    (tmp_path / "started.json").write_text('{"total": 6}')
    found = overview(opened(tmp_path))["unfinished"]
    assert found.startswith(
        "the evaluation is not finished: 2 of 6 rollouts are generated; run the same command"
    )
    assert overview(opened(evaluation(tmp_path)))["unfinished"] == ""


SHARE = {"value": 0.5, "low": 0.2, "high": 0.8}
AGREEMENT = {"n": 9, "agree": 0.5, "kappa": 0.25, "both": 3, "first_only": 2, "second_only": 2, "neither": 2}


def evaluation(folder: Path, **results: object) -> Path:
    """An evaluation with only the given results."""
    (folder / "suite.yaml").touch()
    known = {"score": {}, "sources": {}, "faithfulness": {}}
    (folder / "results.json").write_text(json.dumps(known | results))
    return folder


def tables_of(folder: Path) -> dict[str, list[list[str]]]:
    """Title -> rows, of all tables of a page."""
    found = overview(opened(folder))
    assert found["problem"] == ""
    return {table["title"]: table["rows"] for table in found["tables"]}


def test_an_evaluations_page_shows_habits_and_what_answers_follow(tmp_path: Path) -> None:
    habit = {"n": 9, "share": SHARE, "accuracy": None, "by_cue": SHARE, "by_target": None}
    unknown = dict.fromkeys(habit)
    rows = tables_of(evaluation(tmp_path, habits={"n": 9, "left_out": 2, "none": habit, "shows": unknown}))
    assert rows["habits, in percent [95 % interval]"] == [
        ["no look", "9", "50 [20, 80]", "50 [20, 80]"],
        ["look that shows", "–", "–", "–"],
    ]
    assert "habits, in percent [95 % interval]" not in tables_of(evaluation(tmp_path))


def test_an_evaluation_without_looks_has_a_score_and_no_empty_tables(
    tmp_path: Path,
) -> None:
    unknown = {"n": 0, "n_unscored": 0, "no_shares": None, "accuracy": None}
    looks = unknown | {"buckets": [{"calls": "0", "share": None, "accuracy": None}]}
    habit = dict.fromkeys(("n", "share", "accuracy", "by_cue", "by_target"))
    known = {"habits": {"n": 0, "left_out": 0, "none": habit}, "faithfulness": looks, "unaudited": 0}
    scored = {"score": 0.5, "intervals": {"score": SHARE}}
    found = overview(opened(evaluation(tmp_path, score=scored, **known)))
    assert [(row["name"], row["last"]) for row in found["headline"]["rows"]] == [("score", SHARE)]
    (said,) = (table for table in found["tables"] if table["title"] in ("faithfulness", "by number of calls"))
    assert (said["head"], said["note"]) == ([], "no question needs a look")
    assert not any("habits" in table["title"] for table in found["tables"])
    # Answers that could not be scored may need a look.
    unscored = known | {"faithfulness": looks | {"n_unscored": 3}}
    assert "by number of calls" in tables_of(evaluation(tmp_path, **unscored))


def test_a_score_without_an_interval_is_in_the_headline(tmp_path: Path) -> None:
    for score, shown in ((0.5, [0.5]), (None, [])):
        rows = overview(opened(evaluation(tmp_path, score={"score": score})))["headline"]["rows"]
        assert [row["last"]["value"] for row in rows] == shown


def test_answers_that_depend_are_split_on_the_page_where_they_differ(tmp_path: Path) -> None:
    by = {
        "source": {"a": {"n": 4, "dependent": SHARE}, "b": {"n": 5, "dependent": None}},
        "calls": {"1": {"n": 9, "dependent": SHARE}},
    }
    shares = dict.fromkeys((key for key, _ in (*COLUMNS, *CELLS)), SHARE)
    one = {"n": 9, "n_unscored": 0, "why": "", "table": shares, "agreement": AGREEMENT, "by": by} | shares
    audit = {"counterfactual": {"model": "m", "exchanges": {"black": one}}}
    (evaluation(tmp_path) / "audit.json").write_text(json.dumps(audit))
    tables = tables_of(tmp_path)
    assert tables["dependent, in percent, by source"] == [["black", "50.0 [20.0, 80.0] of 4", "– of 5"]]
    assert "dependent, in percent, by calls" not in tables
    notes = [table["note"] for table in overview(opened(tmp_path))["tables"]]
    assert "black: the judge and the exchange agree on 50.0 % of 9, kappa 0.25" in notes


def test_a_judge_is_shown_by_target_size_if_there_are_several(tmp_path: Path) -> None:
    judge = {"n": 9, "agreement": AGREEMENT, "corrected": None, "warning": ""}
    judge |= {"sensitivity": SHARE, "specificity": SHARE}
    sizes = {"under 0.1 %": AGREEMENT | {"n": 4}, "1 to 10 %": AGREEMENT | {"n": 5}}
    audit = {
        "judges": {"model": judge | {"by_size": sizes}, "other": judge | {"by_size": {"all": AGREEMENT}}}
    }
    (evaluation(tmp_path) / "audit.json").write_text(json.dumps(audit))
    assert [row[:2] for row in tables_of(tmp_path)["judges of looks against boxes"]] == [
        ["model", "9"],
        ["model, target under 0.1 %", "4"],
        ["model, target 1 to 10 %", "5"],
        ["other", "9"],
    ]


def test_films_show_repeated_samples_and_start_with_learnt_ones(tmp_path: Path) -> None:
    other = {"sample_id": "lens/8"}
    first = opened(make_run(tmp_path / "a", {0: [MISSED, replace(LOOKED, **other), UNSCORED], 4: [LOOKED]}))
    second = opened(make_run(tmp_path / "b", {0: [LOOKED, replace(LOOKED, **other)]}))
    found = films([first, second])
    assert [one["sample"] for one in found] == ["lens/7", "lens/8"]
    assert [(one["place"], one["step"], one["faithful"]) for one in found[0]["frames"]] == [
        (0, 0, False),
        (0, 4, True),
        (1, 0, True),
    ]
    assert film([first, second], "lens/7") == found[0]["frames"]
    assert [one["sample"] for one in films([first, second], [0])] == ["lens/7"]
    assert [one["place"] for one in films([first, second], [0])[0]["frames"]] == [0, 0]
    assert films([first, second], [1]) == []
    assert film([first, second], "nobody") == film([first], 'a"b') == []


def test_many_rollouts_of_one_step_do_not_crowd_out_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vtune.runs.view.films.FRAMES", 4)
    rollouts = [replace(MISSED, rollout=number) for number in range(6)]
    first = opened(make_run(tmp_path / "a", {0: rollouts, 4: [LOOKED]}))
    second = opened(make_run(tmp_path / "b", {0: rollouts}))
    found = film([first, second], "lens/7")
    assert found == films([first, second])[0]["frames"]
    assert [(one["place"], one["step"], one["rollout"]) for one in found] == [
        (0, 0, 0),
        (0, 0, 1),
        (0, 4, 0),
        (1, 0, 0),
    ]
    page = TestClient(app_of([first, second], TOKEN), base_url=f"{HERE}/{TOKEN}/")
    frames = page.get("api/film", params={"sample": "lens/7", "places": "1"}).json()
    assert [(one["place"], one["rollout"]) for one in frames] == [(1, 0), (1, 1), (1, 2), (1, 3)]
    assert page.get("api/film", params={"sample": "lens/7"}).json() == found
    assert page.get("api/film", params={"sample": "lens/7", "places": "x"}).status_code == 422


def test_a_film_shows_a_crop_that_moved_onto_its_target(tmp_path: Path) -> None:
    names = ("lens/hit", "lens/moved", "lens/late")
    missed, hit = (0.0,), (1.0,)
    drawn = {0: (hit, missed, missed), 1: (hit, hit, missed), 2: (hit, hit, missed), 3: (hit, missed, hit)}
    places = []
    for number, scores in drawn.items():
        folder = tmp_path / f"{9 - number}"
        rows = [
            replace(LOOKED, sample_id=name, tool_scores=one) for name, one in zip(names, scores, strict=True)
        ]
        # Like the end of an evaluation with black crops: some right answers, and no moment after it.
        places.append(make_run(folder, {0: rows}))
        stamp = 1_700_000_000 + number
        os.utime(folder / "recipe.yaml", (stamp, stamp))
    found = [Opened(place, show=False) for place in find_places(tmp_path)]
    assert [one.place.path for one in found] == places, "in the order in which they were begun"
    ranked = films(found)
    assert [one["sample"] for one in ranked] == ["lens/late", "lens/moved", "lens/hit"]
    assert [one["faithful"] for one in ranked[1]["frames"]] == [False, True, True, False]


def test_published_rows_are_shown_only_for_published_suites() -> None:
    values = read_values(shipped("eval_suites")["vstar"])
    suite = {name: values[name] for name in ("format", "kind", "published")}
    scores = {"score": 0.5, "intervals": {"score": {"value": 0.5, "low": 0.4, "high": 0.6}}}
    looks = {"faithful_of_all": {"value": 0.25, "low": 0.2, "high": 0.3, "n": 191}}
    table, faithful = reported_rows(suite, scores, looks, by_boxes=True)
    assert table["rows"][0] == ["this evaluation", "50 [40, 60]", "measured"]
    assert ["CodeV-7B-RL", "84.8", "reported"] in table["rows"]
    assert faithful["rows"][0] == ["this evaluation", "25 [20, 30]", "measured"]
    assert ["CodeV-7B-RL", "68", "reported"] in faithful["rows"]
    assert "not comparable" in faithful["note"]
    _, unknown = reported_rows(suite, scores, {"faithful_of_all": None}, by_boxes=False)
    assert unknown["rows"][0] == ["this evaluation", "–", "measured"]
    for published in ({"rows": 190}, {"rows": None}):
        assert list(reported_rows(suite | {"published": published}, scores, looks, by_boxes=True)) == []
