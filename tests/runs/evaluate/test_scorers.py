"""`vtune scores`: exporting replies to an official scorer, importing its scores, and results until then."""

import json
from pathlib import Path
from typing import Any

import pytest

import vtune.runs.agent.engines as vtune_engines
from tests.data.formats.published import written
from tests.runs.commands import vtune
from tests.runs.evaluate.rereading import reread
from tests.runs.evaluate.scripted import Saying, asked, write_script
from tests.runs.evaluate.scripted import evaluated as run_script
from tests.runs.evaluate.test_suites import SMALL
from vtune.data.formats.table import FORMATS
from vtune.errors import DataError, RecipeError
from vtune.runs.evaluate import scorers
from vtune.runs.evaluate.finished import read_results
from vtune.runs.evaluate.rollout_files import reopen_unscored
from vtune.runs.evaluate.scorers import export_replies, import_scores
from vtune.runs.evaluate.windows import waits
from vtune.schema.parquet import read_trajectories, write_trajectories

TABLE = "<table><tr><td>1</td></tr></table>"
REPLIES = ["an exit", "(B)", "[100, 160, 350, 500]", '{"total": "12"}', TABLE, "Hello", "<answer></answer>"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """OCRBench v2 with three rows that only the official scorer can grade."""
    folder = tmp_path / "OCRBench_v2"
    folder.mkdir()
    file = written("ocrbench_v2", folder)
    rows = json.loads(file.read_text())
    waiting = ("table parsing en", "full-page OCR cn", "full-page OCR cn")
    rows += [
        rows[0] | {"id": f"w{number}", "type": kind, "answers": [TABLE]}
        for number, kind in enumerate(waiting)
    ]
    file.write_text(json.dumps(rows))
    return file


def evaluated(data: Path, tiny: Path, out: Path, patch: pytest.MonkeyPatch, protocol: str) -> dict[str, Any]:
    patch.setattr(vtune_engines, "TransformersEngine", lambda policy, **_: Saying(policy.chat, REPLIES))
    words = ["--suite", "ocrbench-v2", "--agent", "direct", "--protocol", protocol, "--data", data]
    ended = vtune("eval", *words, "--model", tiny, "--out", out, *SMALL, "--json")
    assert ended.code == 0, ended.err
    found: dict[str, Any] = json.loads(ended.out)
    return found


def official(file: Path, out: Path, scores: dict[str, float]) -> Path:
    """The output of OCRBench v2's `eval.py`: the same rows with scores."""
    rows = json.loads(file.read_text())
    out.write_text(json.dumps([row | {"score": scores.get(str(row["id"]), 1)} for row in rows]))
    return out


def test_scores_are_exported_and_joined_by_question(
    data: Path, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    before = evaluated(data, tiny, out, monkeypatch, "official")["score"]
    # A deferred score is not 0, and is part of no mean, neither of its category nor overall.
    assert "score" not in before
    assert "en" not in before
    assert (before["n"], before["unscored"], before["unreadable"]) == (7, 2, 1)
    assert before["categories"]["text_recognition_en"]["score"] == 1.0
    assert "score" not in before["categories"]["element_parsing_en"]
    whys = [t.reward.why for t in read_trajectories(out / "trajectories.parquet") if t.reward]
    assert ["scored elsewhere" in why for why in whys] == [False] * 4 + [True, True, False]

    told = vtune("scores", "export", out, "--out", tmp_path / "predictions.json")
    assert (told.code, "7 replies, 2 of them without a score" in told.out) == (0, True), told.err
    rows = json.loads((tmp_path / "predictions.json").read_text())
    asked = json.loads(data.read_text())
    assert [{key: row[key] for key in row if key != "predict"} for row in rows] == asked
    assert [row["predict"] for row in rows] == [*REPLIES[:6], ""]

    scored = official(
        tmp_path / "predictions.json", tmp_path / "scored.json", {"w0": 0.5, "w1": 0.25, "w2": 0.0}
    )
    told = vtune("scores", "import", out, scored, "--json")
    assert told.code == 0, told.err
    found = json.loads(told.out)
    # English: four categories with 1 and one with 0.5; Chinese: one, with 0.25 and 0.
    assert found["score"]["en"] == pytest.approx((1 + 1 + 1 + 1 + 0.5) / 5)
    assert found["score"]["cn"] == pytest.approx(0.125)
    assert found["score"]["score"] == pytest.approx((0.9 + 0.125) / 2)
    assert {key: found["official"][key] for key in ("taken", "compared", "differ")} == {
        "taken": 3,
        "compared": 4,
        "differ": [],
    }
    stored = json.loads((out / "results.json").read_text())
    assert stored["score"] == found["score"]
    assert stored["sources"]["ocrbench_v2"]["unscored"] == 0
    items = [json.loads(line) for line in (out / "items.jsonl").read_text().splitlines()]
    assert [item["scores"] for item in items] == [[1.0], [1.0], [1.0], [1.0], [0.5], [0.25], [0.0]]
    files = {file.name: file.read_bytes() for file in out.iterdir() if file.is_file()}
    import_scores(out, scored)
    assert {file.name: file.read_bytes() for file in out.iterdir() if file.is_file()} == files
    assert reread(out, "lmms-eval").score == pytest.approx((4 + 0.5 + 0.25) / 7)


def test_questions_left_out_by_the_scorer_are_counted_and_in_no_mean(data: Path, tmp_path: Path) -> None:
    names = [sample.id for sample in asked("ocrbench-v2", data)]
    model, out = (
        write_script(tmp_path / "r.jsonl", dict(zip(names, ([reply] for reply in REPLIES), strict=True))),
        tmp_path / "out",
    )
    run_script("ocrbench-v2", model, data, out, "--agent", "direct")
    export_replies(out, tmp_path / "predictions.json")
    scored = official(
        tmp_path / "predictions.json", tmp_path / "scored.json", {"w0": 0.5, "w1": 0.25, "w2": 0.0}
    )
    rows = json.loads(scored.read_text())
    whole = import_scores(out, scored)["score"]
    assert whole["cn"] == pytest.approx(0.125)
    for left_out in ({"w1"}, {"w2"}):  # w2 has no answer, which would be wrong
        marked = [row | ({"score": 0, "ignore": "True"} if row["id"] in left_out else {}) for row in rows]
        scored.write_text(json.dumps(marked))
        told = vtune("scores", "import", out, scored)
        assert (told.code, "2 scores taken, 1 left out by the scorer" in told.out) == (0, True), told.err
        found = json.loads((out / "results.json").read_text())
        assert found["score"]["cn"] == pytest.approx(0.0 if "w1" in left_out else 0.25)
        assert found["score"]["en"] == pytest.approx(whole["en"])
        assert (found["score"]["unscored"], found["official"]["left_out"]) == (1, 1)
        assert reread(out, "lmms-eval").score is not None
    scored.write_text(json.dumps(rows))
    assert import_scores(out, scored)["score"]["score"] == whole["score"]


def test_a_disagreeing_scorer_is_reported_and_a_wrong_file_refused(
    data: Path, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    evaluated(data, tiny, out, monkeypatch, "lmms-eval")
    export_replies(out, tmp_path / "predictions.json")
    before = (out / "results.json").read_bytes()
    wrong = tmp_path / "wrong.json"
    for content, told in (
        ([{"id": "w0", "score": 1}], "2 of 3 waiting questions have no score: w1, w2"),
        ({"scores": 1}, "not what the official scorer writes"),
        ([{"id": "w0"}], "not what the official scorer writes"),
        ([{"id": "w0", "score": 2}], r"is not in \[0, 1\]"),
    ):
        wrong.write_text(json.dumps(content))
        with pytest.raises(DataError, match=told):
            import_scores(out, wrong)
    rows = json.loads((tmp_path / "predictions.json").read_text())
    theirs = [row | {"score": 1.0} | ({"predict": "other"} if row["id"] == "w1" else {}) for row in rows]
    wrong.write_text(json.dumps(theirs))
    with pytest.raises(DataError, match=r"1 of its replies are not those of .*out: w1") as refused:
        import_scores(out, wrong)
    assert f"vtune scores export {out}" in str(refused.value.fix)
    assert (out / "results.json").read_bytes() == before
    scored = official(tmp_path / "predictions.json", tmp_path / "scored.json", {"0": 0.0, "w0": 1.0})
    found = import_scores(out, scored)
    # Our score stays; readers of the result see that upstream disagrees.
    assert found["official"]["differ"] == ["ocrbench_v2/0"]
    assert found["score"]["categories"]["text_recognition_en"]["score"] == 1.0
    assert found["score"]["score"] == pytest.approx(6 / 7)
    data.write_text(data.read_text() + " ")
    with pytest.raises(DataError, match="have changed"):
        import_scores(out, scored)


@pytest.fixture
def exported(data: Path, tmp_path: Path) -> tuple[Path, list[dict[str, Any]]]:
    """An evaluation, and the rows scored by its scorer."""
    names = [sample.id for sample in asked("ocrbench-v2", data)]
    said = dict(zip(names, ([reply] for reply in REPLIES), strict=True))
    model, out = write_script(tmp_path / "r.jsonl", said), tmp_path / "out"
    run_script("ocrbench-v2", model, data, out, "--agent", "direct")
    export_replies(out, tmp_path / "predictions.json")
    return out, [row | {"score": 1.0} for row in json.loads((tmp_path / "predictions.json").read_text())]


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"score": 0.0}, "question 'w0' has two scores: 1.0 and 0.0"),
        ({"ignore": "True"}, "question 'w0' has two scores: 1.0 and None"),
        ({"predict": "other"}, "question 'w0' has two replies"),
    ],
)
def test_two_rows_of_a_question_that_differ_are_refused_by_name(
    exported: tuple[Path, list[dict[str, Any]]], other: dict[str, Any], told: str, tmp_path: Path
) -> None:
    out, rows = exported
    again = next(row for row in rows if row["id"] == "w0")
    scored, before = tmp_path / "scored.json", (out / "results.json").read_bytes()
    scored.write_text(json.dumps([*rows, again | other]))
    with pytest.raises(DataError, match=told) as refused:
        import_scores(out, scored)
    assert (refused.value.where, (out / "results.json").read_bytes()) == (str(scored), before)
    scored.write_text(json.dumps([*rows, again]))  # the same row twice is no contradiction
    assert import_scores(out, scored)["official"]["taken"] == 3


@pytest.mark.parametrize("times", [1, 2])
def test_a_score_that_is_not_a_number_is_refused_as_such(
    exported: tuple[Path, list[dict[str, Any]]], times: int, tmp_path: Path
) -> None:
    out, rows = exported
    scored = tmp_path / "scored.json"
    others = [row for row in rows if row["id"] != "w0"]
    (broken,) = [row | {"score": float("nan")} for row in rows if row["id"] == "w0"]
    scored.write_text(json.dumps([*others, *[broken] * times]))
    with pytest.raises(DataError, match=r"the score of 'w0' is not in \[0, 1\]"):
        import_scores(out, scored)


def test_rows_for_unexported_questions_are_counted_and_named(
    exported: tuple[Path, list[dict[str, Any]]], tmp_path: Path
) -> None:
    out, rows = exported
    scored = tmp_path / "scored.json"
    scored.write_text(json.dumps(rows))
    assert "not exported" not in vtune("scores", "import", out, scored).out
    whole = read_results(out)["score"]
    scored.write_text(
        json.dumps([*rows, *(rows[0] | {"id": f"x{number}", "score": 0} for number in range(6))])
    )
    told = vtune("scores", "import", out, scored)
    assert "6 row(s) of questions that were not exported are not used: x0, x1, x2, x3, x4 …" in told.out
    found = read_results(out)
    assert (found["score"], found["official"]["not_exported"][-1]) == (whole, "x5")


def test_two_scores_of_a_mega_bench_question_are_refused_by_name() -> None:
    query = {"global_idx": "7", "response": "a", "scores": {"query": 1.0}}
    tasks = [{"task_name": "signs", "query_response": [query, query | {"scores": {"query": 0.5}}]}]
    official = FORMATS["mega_bench"].official
    assert official is not None
    with pytest.raises(DataError, match=r"question 'signs/7' has two scores: 1\.0 and 0\.5"):
        official.read({"data": tasks})


def test_scores_are_imported_even_if_a_rollout_failed(data: Path, tmp_path: Path) -> None:
    names = [sample.id for sample in asked("ocrbench-v2", data)]
    said = dict(zip(names, ([reply] for reply in REPLIES), strict=True)) | {names[5]: []}
    model, out = write_script(tmp_path / "r.jsonl", said), tmp_path / "out"
    run_script("ocrbench-v2", model, data, out, "--agent", "direct", "--set", "reward.max_unscored=0.2")
    assert export_replies(out, tmp_path / "predictions.json") == {
        "out": str(tmp_path / "predictions.json"),
        "replies": 6,
        "waiting": 1,
    }
    rows = json.loads((tmp_path / "predictions.json").read_text())
    assert "w1" not in [row["id"] for row in rows]
    scored = official(tmp_path / "predictions.json", tmp_path / "scored.json", {"w0": 0.5, "w2": 0.0})
    # The scorer may know the question from elsewhere: what failed here stays unscored.
    for more in ([], [rows[0] | {"id": "w1", "score": 1}]):
        scored.write_text(json.dumps([*json.loads(scored.read_text()), *more]))
        found = import_scores(out, scored)
        assert (found["official"]["taken"], found["score"]["unscored"]) == (2, 1)
    kept = list(read_trajectories(out / "trajectories.parquet"))
    assert [t.reward is None or t.reward.accuracy is None for t in kept].index(True) == 5


def test_a_deferred_reply_is_not_generated_again(
    data: Path, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    evaluated(data, tiny, out, monkeypatch, "vtune")
    stored = list(read_trajectories(out / "trajectories.parquet"))
    assert [waits(t) for t in stored] == [False] * 4 + [True, True, False]
    part = tmp_path / "trajectories" / "from-00000000.parquet"
    part.parent.mkdir()
    write_trajectories(part, stored)
    reopen_unscored(part.parent.parent, part.parent, rollouts=1)
    assert part.exists()


def test_a_benchmark_without_an_official_scorer_is_refused(tmp_path: Path, tiny: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    suite = vtune("recipes", "copy", "eval/countbench", out / "suite.yaml")
    assert suite.code == 0
    (out / "results.json").write_text(
        json.dumps({"model": "m", "suite": {"kind": "count"}, "environment": {"data": {}}})
    )
    with pytest.raises(RecipeError, match="is known for questions of the format `countbench`"):
        export_replies(out, tmp_path / "predictions.json")


@pytest.mark.parametrize("protocol", ["vtune", "official", "lmms-eval", "paper"])
def test_mega_bench_is_a_mean_over_tasks_once_its_evaluator_has_scored(
    protocol: str, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "sets"
    here.mkdir()
    written("mega_bench", here)
    monkeypatch.setenv("VTUNE_DATA", str(here))
    replies = ["Answer: Exit", "Answer: Exit", "Answer: a * a"]
    monkeypatch.setattr(vtune_engines, "TransformersEngine", lambda policy, **_: Saying(policy.chat, replies))
    words = ["--suite", "orsta-table2", "--agent", "direct", "--protocol", protocol, "--model", tiny, *SMALL]
    ended = vtune("eval", *words, "--out", tmp_path / "out", "--json")
    assert ended.code == 0, ended.err
    table = json.loads(ended.out)["groups"]["orsta-table2"]
    assert (table["average"], table["no_average"]) == (None, "unscored: mega-bench-core")

    out = tmp_path / "out" / "mega-bench-core"
    asked = next(iter(read_trajectories(out / "trajectories.parquet"))).messages[-2]
    assert asked.content.endswith("<image>\nWhat does it say?")
    export_replies(out, tmp_path / "responses.json")
    tasks = json.loads((tmp_path / "responses.json").read_text())
    assert [task["task_name"] for task in tasks] == ["sign_reading", "sign_formula"]
    assert tasks[0]["query_response"][1] == {
        "response": "Answer: Exit",
        "correct_answer": {"answer": "Hall"},
        "global_idx": "sign_reading_1",
        "images": ["./data/1.jpg"],
        "query_text": "<image>\nWhat does it say?",
    }
    assert {"global_images", "global_description", "example_info"} <= tasks[0].keys()
    # As its evaluator writes it; a question that it could not score has -1.
    for task, scores in zip(tasks, ([1.0, 0.0], [-1]), strict=True):
        for query, score in zip(task["query_response"], scores, strict=True):
            query["scores"] = {"field": {}, "info": {}, "query": score}
    (tmp_path / "results.json").write_text(json.dumps({"data": tasks, "summary": {}}))
    found = import_scores(out, tmp_path / "results.json")
    score, official = found["score"], found["official"]
    assert (official["taken"], official["compared"], official["differ"]) == (1, 2, [])
    assert (score["score"], score["tasks"]) == (pytest.approx((0.5 + 0.0) / 2), 2)
    assert score["fields"] == {
        "Mathematics": {"tasks": 1, "score": 0.0},
        "Perception": {"tasks": 1, "score": 0.5},
    }
    again = vtune("eval", *words, "--out", tmp_path / "out", "--resume", "--json")
    assert again.code == 0, again.err
    assert json.loads(again.out)["groups"]["orsta-table2"]["average"] == pytest.approx(0.25)


def test_an_import_that_fails_leaves_the_evaluation_as_it_was(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [sample.id for sample in asked("ocrbench-v2", data)]
    said = dict(zip(names, ([reply] for reply in REPLIES), strict=True))
    out = tmp_path / "out"
    model = write_script(tmp_path / "r.jsonl", said)
    looked = ["reward.max_unscored=0.5", "reward.evidence.search_sources=[ocrbench_v2]"]
    run_script("ocrbench-v2", model, data, out, "--agent", "direct", *(f"--set={one}" for one in looked))
    assert vtune("faithfulness", out).code == 0
    export_replies(out, tmp_path / "predictions.json")
    scored = official(tmp_path / "predictions.json", tmp_path / "scored.json", {"w0": 0.5})
    before = {file.name: file.read_bytes() for file in out.iterdir() if file.is_file()}
    assert "audit.json" in before

    def fails(*_: object) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(scorers, "write_atomically", fails)
    with pytest.raises(OSError, match="the disk is gone"):
        import_scores(out, scored)
    assert {file.name: file.read_bytes() for file in out.iterdir() if file.is_file()} == before


def test_shares_of_looks_use_the_imported_scores(data: Path, tmp_path: Path) -> None:
    names = [sample.id for sample in asked("ocrbench-v2", data)]
    said = dict(zip(names, ([reply] for reply in REPLIES), strict=True))
    model, out = write_script(tmp_path / "r.jsonl", said), tmp_path / "out"
    looked = ["reward.max_unscored=0.5", "reward.evidence.search_sources=[ocrbench_v2]"]
    run_script("ocrbench-v2", model, data, out, "--agent", "direct", *(f"--set={one}" for one in looked))
    assert vtune("faithfulness", out).code == 0
    assert read_results(out)["faithfulness"]["n"] == 5
    export_replies(out, tmp_path / "predictions.json")
    scored = official(
        tmp_path / "predictions.json", tmp_path / "scored.json", {"w0": 1.0, "w1": 1.0, "w2": 0}
    )
    told = vtune("scores", "import", out, scored)
    assert told.out.rstrip().endswith("were removed: run it again")
    assert not (out / "audit.json").exists()
    assert "run it again" not in vtune("scores", "import", out, scored).out
    audit = json.loads(vtune("faithfulness", out, "--json").out)
    found = read_results(out)
    assert found["faithfulness"]["n"] == found["habits"]["n"] == 7
    assert found["faithfulness"] == audit["all"]
    assert "run it again" not in vtune("scores", "import", out, scored).out
    assert (out / "audit.json").exists()
