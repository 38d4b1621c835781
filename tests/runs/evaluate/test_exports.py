"""`vtune export --as`: results in the file formats of other harnesses."""

import csv
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from openpyxl import load_workbook

import vtune.runs.evaluate.exports.table as exporting
from tests.data.benchmarks import make_vstar
from tests.runs.commands import Ended, vtune
from tests.runs.evaluate.scripted import LOOK, asked, evaluated, write_script
from vtune.config import find, load_recipe
from vtune.data.formats import specimens_tsv
from vtune.data.formats.table import FORMATS
from vtune.errors import RecipeError
from vtune.runs.evaluate.suite import EvalSuite
from vtune.schema.message import Message
from vtune.schema.parquet import read_trajectories
from vtune.schema.trajectory import Call, Trajectory
from vtune.view.turns import calls_by_turn

REPLIES = [(LOOK, "<answer>A</answer>"), ("<answer>=2+2</answer>",), ("nothing",), ("<answer>None</answer>",)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exports")
    data = make_vstar(folder / "vstar_bench", 4, (300, 200), (40, 40, 60, 60))
    names = [sample.id for sample in asked("vstar", data)]
    model = write_script(folder / "r.jsonl", dict(zip(names, REPLIES, strict=True)))
    evaluated("vstar", model, data, folder / "out", "--agent", "zoom")
    return folder / "out"


def exported(finished: Path, out: Path, name: str) -> dict[str, Any]:
    ended = vtune("export", finished, out, "--as", name, "--json")
    assert ended.code == 0, ended.err
    found: dict[str, Any] = json.loads(ended.out)
    return found


def table(file: Path) -> list[dict[str, Any]]:
    header, *lines = load_workbook(file, read_only=True).active.iter_rows(values_only=True)
    return [dict(zip(header, line, strict=True)) for line in lines]


def test_vlmevalkit_gets_its_prediction_file(finished: Path, tmp_path: Path) -> None:
    found = exported(finished, tmp_path / "out", "vlmevalkit")
    assert (found["rows"], found["left_out"], found["pictures"]) == (4, 0, 5)
    (file,) = found["files"]
    assert file.endswith("_VStarBench.xlsx")
    rows = table(tmp_path / "out" / file)
    # Values that pandas would read as missing get a trailing space, and no text is a formula.
    assert [row["prediction"] for row in rows] == ["A", "=2+2", " ", "None "]
    assert [row["index"] for row in rows] == [0, 1, 2, 3]
    assert rows[0]["question"] == "What is the colour of the sign?"
    assert [rows[0][letter] for letter in "ABCD"] == ["red", "green", "blue", "yellow"]
    assert (rows[0]["answer"], rows[0]["category"]) == ("A", "direct_attributes")
    record = json.loads(rows[0]["extra_records"])
    assert [turn["role"] for turn in record["turns"]] == ["system", "user", "assistant", "user", "assistant"]
    assert record["turns"][2]["content"] == LOOK
    assert [call["tool"] for call in record["calls"]] == ["image_zoom_in_tool"]
    (shown,) = record["turns"][3]["images"]
    assert (tmp_path / "out" / shown).stat().st_size > 0


def test_a_text_that_xlsx_cannot_hold_gives_a_tsv(tmp_path: Path) -> None:
    data = specimens_tsv.countbench(tmp_path).path
    first, second = (sample.id for sample in asked("countbench", data))
    long = "<answer>" + "so many " * 5000 + "2</answer>"
    model = write_script(tmp_path / "r.jsonl", {first: ["<answer>a\x07b\r2</answer>"], second: [long]})
    evaluated("countbench", model, data, tmp_path / "e", "--agent", "zoom")
    (file,) = exported(tmp_path / "e", tmp_path / "out", "vlmevalkit")["files"]
    assert file.endswith(f"_{data.stem}.tsv")
    with (tmp_path / "out" / file).open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream, delimiter="\t"))
    assert rows[0]["prediction"] == "a\x07b\r2"
    assert len(rows[1]["prediction"]) == 40001
    kept = json.loads(rows[1]["extra_records"])["file"]
    assert json.loads((tmp_path / "out" / kept).read_text())["turns"][-1]["content"] == long
    assert "image" not in rows[0]


def test_shuffled_options_cannot_be_exported_to_vlmevalkit(finished: Path, tmp_path: Path) -> None:
    data, model = finished.parent / "vstar_bench", f"scripted:{finished.parent / 'r.jsonl'}"
    evaluated("vstar", model, data, tmp_path / "e", "--agent", "zoom", "--set", "choices.order=0")
    ended = vtune("export", tmp_path / "e", tmp_path / "out", "--as", "vlmevalkit")
    assert ended.code == 2
    assert "the options were shuffled" in ended.err
    assert [path.name for path in tmp_path.iterdir()] == ["e"]


def test_rollouts_of_a_question_are_separate_files(finished: Path, tmp_path: Path) -> None:
    data, model = finished.parent / "vstar_bench", f"scripted:{finished.parent / 'r.jsonl'}"
    evaluated("vstar", model, data, tmp_path / "e", "--agent", "zoom", "--set", "rollouts=2")
    files = exported(tmp_path / "e", tmp_path / "vk", "vlmevalkit")["files"]
    assert [file.rsplit("_", 2)[1] for file in files] == ["r0", "r1"]
    exported(tmp_path / "e", tmp_path / "inspect", "inspect")
    with zipfile.ZipFile(next((tmp_path / "inspect").iterdir())) as log:
        assert {one["epoch"] for one in json.loads(log.read("summaries.json"))} == {1, 2}


def test_lmms_eval_gets_its_samples_and_its_results(finished: Path, tmp_path: Path) -> None:
    found = exported(finished, tmp_path / "out", "lmms-eval")
    results, samples = (tmp_path / "out" / file for file in found["files"])
    assert samples.name.endswith("_samples_vstar_bench.jsonl")
    rows = [json.loads(line) for line in samples.read_text().splitlines()]
    assert [row["filtered_resps"] for row in rows] == ["A", "=2+2", "", "None"]
    assert rows[0]["resps"] == [f"{LOOK}\n<answer>A</answer>"]
    assert [row["doc_id"] for row in rows] == [0, 1, 2, 3]
    assert [row["target"] for row in rows] == ["A", "D", "A", "B"]
    assert [row["acc"] for row in rows] == [1, 0, 0, 0]
    assert rows[0]["trajectory"]["calls"][0]["tool"] == "image_zoom_in_tool"
    result = json.loads(results.read_text())
    assert result["results"]["vstar_bench"]["score,none"] == 0.25


def test_inspect_gets_a_log_with_pictures_and_tool_turns(finished: Path, tmp_path: Path) -> None:
    (file,) = exported(finished, tmp_path / "out", "inspect")["files"]
    with zipfile.ZipFile(tmp_path / "out" / file) as log:
        header = json.loads(log.read("header.json"))
        names = [name for name in log.namelist() if name.startswith("samples/")]
        first = json.loads(log.read(names[0]))
    assert names[0] == f"samples/{first['id']}_epoch_1.json"
    assert len(names) == 4
    assert header["results"]["scores"][0]["metrics"]["score"]["value"] == 0.25
    assert [turn["role"] for turn in first["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    made, shown = first["messages"][2]["tool_calls"][0], first["messages"][3]
    assert (made["function"], made["id"]) == ("image_zoom_in_tool", shown["tool_call_id"])
    assert made["arguments"]["bbox_2d"] == [20, 20, 200, 150]
    assert any(
        part["type"] == "image" and part["image"].startswith("data:image/") for part in shown["content"]
    )
    assert first["scores"]["vtune"]["value"] == 1.0
    assert first["input"] == first["messages"][:2]


def test_calls_are_assigned_to_turns_as_far_as_the_record_allows() -> None:
    def of(calls: list[Call], mask: str = "") -> dict[int, list[int]]:
        roles = ("user", "assistant", "user", "assistant", "user", "assistant")
        turns = tuple(Message(role, "x") for role in roles)  # type: ignore[arg-type]
        loss = tuple(letter == "1" for letter in mask)
        record = Trajectory(sample_id="a", source="b", messages=turns, calls=tuple(calls), loss_mask=loss)
        made = calls_by_turn(record, guess=False)
        return {number: found for number, found in enumerate(made) if found}

    def call(first: int) -> Call:
        return Call(tool="python", arguments="{}", status="ok", span=(first, first + 1))

    mask = "0110110111"
    assert of([call(1), call(2), call(5)], mask) == {1: [0, 1], 3: [2]}
    assert of([call(0), call(0)]) == {1: [0], 3: [1]}
    assert of([call(0)]) == {}
    assert of([call(1)], "0110") == {5: [0]}  # earlier turns were not generated


def test_a_script_of_an_evaluation_gives_the_same_scores(finished: Path, tmp_path: Path) -> None:
    exported(finished, tmp_path / "out", "scripted")
    data, model = finished.parent / "vstar_bench", f"scripted:{tmp_path / 'out/replies.jsonl'}"
    again = evaluated("vstar", model, data, tmp_path / "e", "--agent", "zoom")
    assert again["score"] == json.loads((finished / "results.json").read_text())["score"]


def test_truncated_conversations_are_truncated_at_the_same_place(finished: Path, tmp_path: Path) -> None:
    data = finished.parent / "vstar_bench"
    names = [sample.id for sample in asked("vstar", data)]
    cuts = [{"cut": "context"}, {"cut": "turn"}, {"cut": "turn"}, {}]
    turns = [[LOOK], ["<answer>D</answer>"], [LOOK, "nothing"], ["<answer>A</answer>"]]
    lines = [{"id": name, "turns": one} | cut for name, one, cut in zip(names, turns, cuts, strict=True)]
    (tmp_path / "r.jsonl").write_text("\n".join(map(json.dumps, lines)))
    first = evaluated("vstar", f"scripted:{tmp_path / 'r.jsonl'}", data, tmp_path / "a", "--agent", "zoom")
    exported(tmp_path / "a", tmp_path / "out", "scripted")
    model = f"scripted:{tmp_path / 'out/replies.jsonl'}"
    again = evaluated("vstar", model, data, tmp_path / "b", "--agent", "zoom")
    assert (first["score"]["unscored"], again["score"]) == (0, first["score"])
    ends = [
        [
            (one.stop_reason, len(one.calls))
            for one in read_trajectories(tmp_path / name / "trajectories.parquet")
        ]
        for name in "ab"
    ]
    assert ends == [[("context", 1), ("length", 0), ("length", 1), ("answer", 0)]] * 2


def test_an_impossible_export_is_refused_and_leaves_nothing(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(source: Path, out: Path, name: str, *more: str) -> Ended:
        ended = vtune("export", source, out, "--as", name, *more)
        assert ended.code == 2
        return ended

    out = tmp_path / "out"
    assert "is not one of vlmevalkit" in refused(finished, out, "evalscope").err
    assert "holds no finished evaluation" in refused(finished.parent, out, "inspect").err
    assert "have no weights" in refused(finished, out, "inspect", "--dtype", "float32").err
    assert "an input of this command" in refused(finished, finished / "x", "inspect").err
    assert "exists" in refused(finished, tmp_path, "inspect").err
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    assert "pip install 'vtune[export]'" in refused(finished, out, "vlmevalkit").err
    assert list(tmp_path.iterdir()) == []


def test_two_exports_to_one_folder_leave_each_other_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "export"

    def quick(finished: Any, folder: Path) -> dict[str, Any]:
        (folder / "by").write_text("quick")
        return {"files": ["by"]}

    def slow(finished: Any, folder: Path) -> dict[str, Any]:
        (folder / "by").write_text("slow")
        exporting.run_export_evaluation(tmp_path / "run", out, "quick")
        assert (folder / "by").read_text() == "slow"
        return {"files": ["by"]}

    monkeypatch.setattr(exporting, "EXPORTS", {"quick": quick, "slow": slow})
    monkeypatch.setattr(exporting, "read_finished", lambda folder: None)
    with pytest.raises(RecipeError, match="export exists"):
        exporting.run_export_evaluation(tmp_path / "run", out, "slow")
    assert (out / "by").read_text() == "quick"


def test_failed_rollouts_in_a_script_fail_again(finished: Path, tmp_path: Path) -> None:
    data = finished.parent / "vstar_bench"
    names = [sample.id for sample in asked("vstar", data)]
    replies = {name: ["<answer>A</answer>"] for name in names} | {names[1]: [LOOK], names[2]: []}
    model, words = (
        write_script(tmp_path / "r.jsonl", replies),
        ("--agent", "zoom", "--set", "reward.max_unscored=0.5"),
    )
    first = evaluated("vstar", model, data, tmp_path / "e", *words)
    assert (first["score"]["n"], first["score"]["unscored"]) == (4, 2)
    found = exported(tmp_path / "e", tmp_path / "out", "scripted")
    assert (found["rows"], found["left_out"]) == (4, 0)
    assert exported(tmp_path / "e", tmp_path / "kit", "vlmevalkit")["left_out"] == 2
    again = evaluated("vstar", f"scripted:{tmp_path / 'out/replies.jsonl'}", data, tmp_path / "e2", *words)
    assert again["score"] == first["score"]


def _answered(suite: str, data: Path, folder: Path, *more: str) -> Path:
    """An evaluation in which every question gets the same reply."""
    folder.mkdir(exist_ok=True)
    model = write_script(folder / "r.jsonl", {s.id: ["<answer>B</answer>"] for s in asked(suite, data)})
    evaluated(suite, model, data, folder / "e", "--agent", "direct", *more)
    return folder / "e"


@pytest.mark.parametrize(
    ("suite", "columns"),
    [
        ("charxiv-reasoning", {"index", "question", "grading_query"}),
        ("refcoco-tsv", {"index", "question", "answer", "category"}),
        (
            "mathvista",
            {"question_type", "answer_type", "choices", "answer_option", "task", "skills", "answer"},
        ),
        ("mathverse", {"question_for_eval", "problem_version", "answer", "metadata"}),
        ("mathvision", {"choices", "answer", "category"}),
    ],
)
def test_vlmevalkit_gets_the_columns_that_its_scorers_read(
    suite: str, columns: set[str], tmp_path: Path
) -> None:
    specimen = FORMATS[load_recipe(find(suite, "eval_suites"), EvalSuite).format].specimen
    assert specimen is not None
    protocol = "vlmevalkit" if suite == "refcoco-tsv" else "vtune"
    (tmp_path / "data").mkdir()
    finished = _answered(suite, specimen(tmp_path / "data").path, tmp_path / "one", "--protocol", protocol)
    (file,) = exported(finished, tmp_path / "out", "vlmevalkit")["files"]
    rows = table(tmp_path / "out" / file)
    assert columns <= rows[0].keys()
    assert {row["prediction"] for row in rows} == {"B"}
    assert all(row[name] is not None for row in rows for name in columns - {"answer_option", "skills"})


def test_questions_unknown_to_vlmevalkit_are_refused(tmp_path: Path) -> None:
    specimen = FORMATS["refcoco"].specimen
    assert specimen is not None
    (tmp_path / "data").mkdir()
    finished = _answered("refcoco", specimen(tmp_path / "data").path, tmp_path / "one")
    ended = vtune("export", finished, tmp_path / "out", "--as", "vlmevalkit")
    assert ended.code == 2
    assert "have columns in VLMEvalKit's file that these data do not have" in ended.err
    assert not (tmp_path / "out").exists()
