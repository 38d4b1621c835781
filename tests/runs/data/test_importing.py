import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from tests.conftest import ROOT
from tests.data.formats.published import MAKERS, lines, parquet
from tests.runs.commands import vtune
from tests.runs.data.test_validating import GOOD
from vtune.data.formats.building import Options
from vtune.data.formats.coco import UNCERTAIN
from vtune.data.formats.likely import check_look
from vtune.data.formats.source import read_rows
from vtune.data.formats.table import FORMATS
from vtune.errors import DataError, RecipeError
from vtune.report.samples import Problem, first_problems, render_import
from vtune.rollout.transcript import check_trace
from vtune.runs.data.exporting import export_data
from vtune.runs.data.importing import import_data
from vtune.schema.message import Message, Picture
from vtune.schema.parquet import read_samples, read_trajectories, write_samples, write_trajectories
from vtune.schema.trajectory import Crop
from vtune.uses import forget, used


def run(name: str, folder: Path, **changes: object) -> dict:
    published = MAKERS[name](folder)
    options = replace(published.options, **changes)
    return import_data(name, published.paths, folder / "out.parquet", options=options, strict=False)


def test_a_duplicate_id_is_skipped(tmp_path: Path) -> None:
    MAKERS["verl"](tmp_path)
    paths = [tmp_path / "train.parquet"] * 2
    result = import_data("verl", paths, tmp_path / "out" / "a.parquet", options=Options(), strict=False)
    assert result["kept"] == 3
    assert sum("is also in" in problem["what"] for problem in result["problems"]) == 3


def test_a_skipped_row_does_not_block_a_good_one_with_its_id(tmp_path: Path) -> None:
    row = {"data_source": "s", "prompt": "Which?", "extra_info": {"id": "s/1"}}
    broken, good = (
        {**row, "reward_model": {"ground_truth": truth, "verifier": "exact"}} for truth in (".", "red")
    )
    lines(tmp_path / "rows.jsonl", [broken, good, good])
    result = import_data(
        "samples", [tmp_path / "rows.jsonl"], tmp_path / "out.parquet", options=Options(), strict=False
    )
    assert [problem["row"] for problem in result["problems"]] == [0, 2]
    assert "row 1" in result["problems"][1]["what"]
    assert [one.ground_truth for one in read_samples(tmp_path / "out.parquet")] == ["red"]


def test_a_ground_truth_rejected_by_its_verifier_is_skipped_with_a_fix(tmp_path: Path) -> None:
    MAKERS["easyr1"](tmp_path)
    options = Options(verifier="math")
    file = tmp_path / "geometry3k@train.parquet"
    result = import_data("easyr1", [file], tmp_path / "out.parquet", options=options, strict=False)
    (problem,) = result["problems"]
    assert (result["kept"], problem["row"]) == (1, 1)
    assert "'Pont Neuf' is not an expression" in problem["what"]
    assert "`exact`" in problem["fix"]


def test_nothing_is_written_without_good_rows(tmp_path: Path) -> None:
    MAKERS["coco"](tmp_path)
    out = tmp_path / "out" / "a.parquet"
    with pytest.raises(DataError, match="no row could be imported") as caught:
        import_data(
            "coco", [tmp_path / "instances.json"], out, options=Options(images=tmp_path / "no"), strict=False
        )
    assert "cannot read" in str(caught.value)
    assert list(out.parent.iterdir()) == []


def test_an_option_without_effect_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="--columns has no effect with the format verl"):
        run("verl", tmp_path, columns=tmp_path / "columns.yaml")
    with pytest.raises(DataError, match="unknown verifier 'chioce'"):
        run("verl", tmp_path, verifier="chioce")


def test_a_second_import_does_not_read_what_the_first_wrote(tmp_path: Path) -> None:
    MAKERS["verl"](tmp_path)
    out = tmp_path / "all.parquet"
    first = import_data("verl", [tmp_path], out, options=Options(), strict=False)
    with pytest.raises(RecipeError, match="an input of this command"):
        import_data("verl", [tmp_path], out, options=Options(), strict=False)
    assert first["kept"] == len(list(read_samples(out))) == 3


@pytest.mark.parametrize("ending", [".jsonl", ".JSON", ".csv", ".tsv"])
def test_parquet_is_not_written_under_the_name_of_another_format(ending: str, tmp_path: Path) -> None:
    out = tmp_path / f"x{ending}"
    photographs = ("--instances", tmp_path / "i.json", "--images", tmp_path)
    for command in (
        ("import", "samples", tmp_path / "a.jsonl", "--out", out),
        ("export", "verl", tmp_path / "a.parquet", "--out", out),
        ("make", "traces", "--data", tmp_path / "a.parquet", "--out", out),
        ("make", "coco", *photographs, "--out", out),
        ("make", "coco", *photographs, "--out", tmp_path / "x.parquet", "--traces", out),
    ):
        ended = vtune("data", *command)
        assert ended.code == 2
        assert f"x{ending} ends in {ending}, but " in ended.err
        assert ".parquet" in ended.err
    assert not out.exists()


def test_a_missing_path_is_reported(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no file or folder at"):
        import_data("verl", [tmp_path / "no"], tmp_path / "a.parquet", options=Options(), strict=False)


def test_imported_traces_can_be_trained_on(tmp_path: Path) -> None:
    run("thyme", tmp_path)
    traces = list(read_trajectories(tmp_path / "out.parquet"))
    assert len(traces) == 3
    for trace in traces:
        check_trace(trace, where="here")


def test_an_export_contains_pictures_from_files(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(GOOD.images[0].data or b"")
    path = tmp_path / "samples.parquet"
    write_samples(path, [replace(GOOD, images=(Picture(path="a.png"),))])
    (tmp_path / "elsewhere").mkdir()
    export_data("verl", path, tmp_path / "elsewhere" / "verl.parquet")
    back = tmp_path / "elsewhere" / "back.parquet"
    import_data("verl", [tmp_path / "elsewhere" / "verl.parquet"], back, options=Options(), strict=True)
    (sample,) = read_samples(back)
    assert sample.images[0].data == GOOD.images[0].data


def test_a_truth_that_was_changed_after_the_export_stays_changed(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path, there, back = (tmp_path / f"{name}.parquet" for name in ("samples", "there", "back"))
    write_samples(path, [GOOD])
    export_data("vtriune", path, there)
    table = pq.read_table(str(there))
    rows = table.to_pylist()
    rows[0]["reward_model"]["ground_truth"] = "\\boxed{A}"
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), str(there))
    import_data("vtriune", [there], back, options=Options(), strict=True)
    assert next(read_samples(back)).ground_truth == "A"


def test_an_unknown_export_format_is_reported(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="unknown format 'vtrune'") as caught:
        export_data("vtrune", tmp_path / "a.parquet", tmp_path / "b.parquet")
    assert caught.value.fix.startswith("did you mean `vtriune`? To add your own")


@pytest.mark.parametrize("name", ["csv", "TSV", ".jsonl", "parquet", "table", "xlsx"])
def test_a_file_type_in_place_of_a_format_gets_advice_on_tables(name: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="that is a kind of file") as caught:
        import_data(name, [tmp_path / "t.csv"], tmp_path / "out.parquet", options=Options(), strict=False)
    assert "import a table of your own as `hf`, with a map of its columns" in caught.value.fix
    assert caught.value.fix.startswith("save it as CSV") == (name == "xlsx")


TOLD = {"published_prompt", "published_tools"}


@pytest.mark.parametrize("name", [name for name, layout in FORMATS.items() if "tools" in layout.takes])
@pytest.mark.parametrize("tools", [("python",), ("image_zoom_in_tool",), ()])
def test_every_format_accepts_tools_for_its_rows(name: str, tools: tuple, tmp_path: Path) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    published = run(name, tmp_path / "a")
    plain = list(read_samples(tmp_path / "a" / "out.parquet"))
    result = run(name, tmp_path / "b", tools=tools)
    samples = list(read_samples(tmp_path / "b" / "out.parquet"))
    assert result["kept"] == published["kept"] == len(samples) > 0
    for before, sample in zip(plain, samples, strict=True):
        assert sample.tools == tools
        assert [turn.role for turn in sample.prompt] == ["user"]
        assert "<tool_call>" not in sample.question
        kept = {key: value for key, value in sample.extra.items() if key not in TOLD}
        # Names of pictures next to the file depend on its folder.
        assert [picture.data for picture in sample.images] == [picture.data for picture in before.images]
        known = {"prompt": before.prompt, "tools": before.tools, "images": before.images}
        assert replace(sample, extra=kept, **known) == before  # type: ignore[arg-type]


def test_deepeyes_rows_can_be_converted_for_code(tmp_path: Path) -> None:
    run("deepeyes", tmp_path, tools=("python",))
    sample = next(s for s in read_samples(tmp_path / "out.parquet") if s.source == "vstar")
    assert [turn.content for turn in sample.prompt] == ["<image>\nWhat colour is the glove?"]
    assert sample.extra["published_tools"] == ["image_zoom_in_tool"]
    system, user = sample.extra["published_prompt"]
    assert "image_zoom_in_tool" in system["content"]
    assert "**image_zoom_in_tool**" in user["content"]


def test_a_row_with_an_unknown_tool_prompt_is_skipped(tmp_path: Path) -> None:
    turn = {"role": "user", "content": "Which? Use <tool_call> to look."}
    row = {"data_source": "own", "prompt": [turn], "reward_model": {"style": "rule", "ground_truth": "red"}}
    good = row | {"prompt": [turn | {"content": "Which?"}]}
    file = lines(tmp_path / "rows.jsonl", [row, good])
    options = Options(tools=("python",))
    result = import_data("verl", [file], tmp_path / "out.parquet", options=options, strict=False)
    (problem,) = result["problems"]
    assert (result["kept"], problem["row"]) == (1, 0)
    assert "mentions <tool_call>, which is not offered" in problem["what"]


def test_tools_cannot_be_set_for_traces(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="--tools has no effect with the format thyme"):
        run("thyme", tmp_path, tools=("python",))


def test_the_command_line_accepts_tools_or_none(tmp_path: Path) -> None:
    published = MAKERS["thinklite"](tmp_path)
    words = ("data", "import", "thinklite", *published.paths, "--out", tmp_path / "out.parquet")
    ended = vtune(*words, "--tools", "python", "--tools", "image_zoom_in_tool")
    assert ended.code == 0, ended.err
    offered = {sample.tools for sample in read_samples(tmp_path / "out.parquet")}
    assert offered == {("python", "image_zoom_in_tool")}
    assert vtune(*words, "--tools", "none").code == 0
    assert {sample.tools for sample in read_samples(tmp_path / "out.parquet")} == {()}
    refused = vtune(*words, "--tools", "pyhton")
    assert (refused.code, "did you mean `python`?" in refused.err) == (2, True)


LOOKS = [
    ("mmsearch", "verl"),
    ("mmsearch", "codev"),
    ("verl", "mmsearch"),
    ("verl", "vtriune"),
    ("verl", "coco"),
    ("deepeyes", "codev"),
    ("codev", "deepeyes"),
    ("codev", "verl"),
    ("easyr1", "thyme"),
    ("thyme", "easyr1"),
    ("mars", "verl"),
    ("verl", "hrbench"),
    ("hrbench", "vstar"),
]


@pytest.mark.parametrize(("asked", "there"), LOOKS)
def test_a_file_of_another_format_gets_the_right_command(asked: str, there: str, tmp_path: Path) -> None:
    published = MAKERS[there](tmp_path)
    takes = {"images": tmp_path} if asked in ("verl", "coco") else {}
    out = tmp_path / "out" / "a.parquet"
    with pytest.raises(DataError, match=f"looks like a file of the format `{there}`") as caught:
        import_data(asked, published.paths, out, options=Options(**takes), strict=False)
    assert caught.value.fix.startswith(f"vtune data import {there} ")
    assert caught.value.where
    assert not out.exists()


def test_a_folder_of_another_format_gets_the_right_command(tmp_path: Path) -> None:
    folder = MAKERS["vstar"](tmp_path).paths[0]
    with pytest.raises(DataError, match="looks like a file of the format `vstar`, not of `easyr1`") as caught:
        import_data("easyr1", [folder], tmp_path / "out.parquet", options=Options(), strict=False)
    assert (caught.value.where, caught.value.fix) == (str(folder), f"vtune data import vstar {folder} …")


@pytest.mark.parametrize(
    ("look", "code", "said"),
    [
        (
            'lambda glance: "riddle" in glance.row',
            2,
            "looks like a file of the format `lines`, not of `easyr1`",
        ),
        ('lambda glance: "riddles" in glance.row', 0, ""),
        (
            'lambda glance: glance.row["riddles"]',
            1,
            "format `lines` of mine.py is broken: KeyError: 'riddles'",
        ),
    ],
)
def test_a_custom_format_describes_how_its_files_look(
    look: str, code: int, said: str, tmp_path: Path
) -> None:
    text = (ROOT / "tests/own/lines.py").read_text()
    (tmp_path / "mine.py").write_text(text.replace("specimen=specimen)", f"specimen=specimen, looks={look})"))
    file = lines(tmp_path / "rows.jsonl", [{"riddle": "?", "problem": "?", "answer": "A"}])
    words = ("data", "import", "easyr1", file, "--out", tmp_path / "out.parquet")
    try:
        ended = vtune(*words, "--uses", tmp_path / "mine.py")
    finally:
        forget(used())
    assert ended.code == code, ended.err
    assert said in ended.err
    assert vtune(*words).code == 0, "nobody has brought it"


def test_every_published_file_looks_like_its_own_format(tmp_path: Path) -> None:
    for name, make in MAKERS.items():
        (tmp_path / name).mkdir()
        published = make(tmp_path / name)
        for path in published.paths if name != "hf" else []:
            check_look(name, path, published.options)


def test_an_export_does_not_touch_an_imports_list_beside_it(tmp_path: Path) -> None:
    rows = [{"problem": "Which?", "answer": "A"}, {"problem": "", "answer": "A"}]
    out = tmp_path / "out.parquet"
    import_data("easyr1", [lines(tmp_path / "questions.jsonl", rows)], out, options=Options(), strict=False)
    listed = (tmp_path / "out.problems.txt").read_text()
    export_data("samples", out, tmp_path / "out.jsonl")
    assert (tmp_path / "out.problems.txt").read_text() == listed


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
@pytest.mark.parametrize("line", ['{"data_source": "b", %s', '{%s, "extra_info": [{"a": 1, "a": 1}]}'])
def test_a_row_with_a_duplicate_key_is_skipped(line: str, name: str, tmp_path: Path) -> None:
    row = json.dumps({"data_source": "a", "prompt": "How many?", "reward_model": {"ground_truth": "3"}})
    odd = line % (row[1:] if line.startswith('{"data') else row[1:-1])
    file, out = tmp_path / name, tmp_path / "out.parquet"
    file.write_text(f"{row}\n{odd}\n" if name == "a.jsonl" else f"[{row},\n{odd}]")
    result = import_data("samples", [file], out, options=Options(), strict=False)
    key = "data_source" if line.startswith('{"data') else "a"
    told = f"{file}, row 1: the key `{key}` is given twice"
    assert Path(result["problems_file"]).read_text().startswith(told)
    with pytest.raises(DataError, match=f"the key `{key}` is given twice"):
        import_data("samples", [file], out, options=Options(), strict=True)


def test_many_bad_rows_are_summarised_and_all_listed_in_a_file(tmp_path: Path) -> None:
    rows = [{"problem": "Which?", "answer": "A"}] + [{"problem": "", "answer": "A"}] * 40
    file = lines(tmp_path / "questions.jsonl", rows)
    out = tmp_path / "out.parquet"
    ended = vtune("data", "import", "easyr1", file, "--out", out)
    assert ended.code == 0
    told = ended.out.splitlines()
    assert told[0].startswith(f"left out: {file}, rows 1, 2, 3, 4, 5 and 35 more: the question is empty")
    assert told[1].startswith("left out: all of them are in")
    assert len(told) < 6
    listed = (tmp_path / "out.problems.txt").read_text().splitlines()
    assert len(listed) == 40
    assert listed[0].startswith(f"{file}, row 1: the question is empty")
    file.write_text(file.read_text().splitlines()[0])
    assert vtune("data", "import", "easyr1", file, "--out", out).code == 0
    assert not (tmp_path / "out.problems.txt").exists()


def test_rows_with_the_same_problem_share_a_line_and_hide_no_other() -> None:
    alike = [Problem(file="a", row=row, what="no answer", fix="add one") for row in range(500)]
    other = [Problem(file="a", row=500, what="no picture", fix="add one")]
    assert first_problems([*alike, *other]) == [
        "a, rows 0, 1, 2, 3, 4 and 495 more: no answer; add one",
        "a, row 500: no picture; add one",
    ]
    assert first_problems(alike, "see FILE")[1:] == ["see FILE"]
    assert first_problems(alike[:3], "see FILE") == ["a, rows 0, 1 and 2: no answer; add one"]
    many = [Problem(file="a", row=row, what=f"answer {row // 2}", fix="") for row in range(30)]
    shown = first_problems(many, "see FILE")
    assert shown[0] == "a, rows 0 and 1: answer 0"
    assert shown[-1] == "… and 10 more; see FILE"
    assert len(shown) == 11


@pytest.mark.parametrize("question", ["", "  ", "<image>\n"])
def test_an_empty_question_is_skipped_with_a_fix(question: str, tmp_path: Path) -> None:
    file = lines(tmp_path / "qa.jsonl", [{"q": "Which?", "a": "x"}, {"q": question, "a": "x"}])
    columns = tmp_path / "columns.yaml"
    columns.write_text("source: own\nquestion: q\nanswer: a\n")
    result = import_data(
        "hf", [file], tmp_path / "out.parquet", options=Options(columns=columns), strict=False
    )
    (problem,) = result["problems"]
    assert (problem["row"], result["kept"]) == (1, 1)
    assert "the question is empty" in problem["what"]
    assert problem["fix"]


HALF = "cut \ud83d here"


@pytest.mark.parametrize("place", ["prompt", "data_source", "extra_info", "images", "column"])
def test_a_row_with_a_lone_surrogate_is_skipped_with_a_fix(place: str, tmp_path: Path) -> None:
    good = {
        "data_source": "qa",
        "prompt": [{"role": "user", "content": "Which?"}],
        "reward_model": {"ground_truth": "red"},
        "extra_info": {"id": "good"},
    }
    changes = {
        "prompt": [{"role": "user", "content": HALF}],
        "data_source": HALF,
        "extra_info": {"id": "odd", "notes": [{HALF: "x"}]},
        "images": [f"{HALF}.jpg"],
    }
    odd = good | {place: changes[place]} if place in changes else {"data_source": "qa", HALF: 1}
    file = lines(tmp_path / "rows.jsonl", [good, odd])
    out = tmp_path / "out.parquet"
    result = import_data("verl", [file], out, options=Options(), strict=False)
    (problem,) = result["problems"]
    assert (problem["row"], result["kept"]) == (1, 1)
    assert "\\ud83d" in problem["what"] + problem["fix"]
    assert str(file) in (tmp_path / "out.problems.txt").read_text()
    with pytest.raises(DataError):
        import_data("verl", [file], out, options=Options(), strict=True)


def test_a_trace_with_a_lone_surrogate_is_skipped(tmp_path: Path) -> None:
    (published,) = MAKERS["thyme"](tmp_path).paths[:1]
    row = next(read_rows(published))[1]
    assert isinstance(row, dict)
    rows = [row, row | {"response": row["response"].replace("<answer>", f"{HALF}<answer>")}]
    file = lines(tmp_path / "half.jsonl", rows)
    result = import_data("thyme", [file], tmp_path / "out.parquet", options=Options(), strict=False)
    (problem,) = result["problems"]
    assert (problem["row"], result["kept"]) == (1, 1)
    assert "\\ud83d" in problem["what"]


def test_a_file_that_breaks_midway_is_reported(tmp_path: Path) -> None:
    file, columns = tmp_path / "qa.parquet", tmp_path / "columns.yaml"
    parquet(file, [{"q": f"Which {number}?", "a": "x" * 1000} for number in range(5000)])
    content = bytearray(file.read_bytes())
    content[4:400] = bytes(396)  # the pages, not the footer that lists them
    file.write_bytes(content)
    columns.write_text("source: own\nquestion: q\nanswer: a\n")
    options = Options(columns=columns)
    with pytest.raises(DataError, match=r"breaks off or is damaged") as caught:
        import_data("hf", [file], tmp_path / "out.parquet", options=options, strict=False)
    assert str(file) in str(caught.value)


def test_shards_may_differ_in_columns_and_types_or_be_empty(tmp_path: Path) -> None:
    folder, columns = tmp_path / "shards", tmp_path / "columns.yaml"
    folder.mkdir()
    shards: list[dict[str, Any]] = [
        {"q": ["Which?"], "a": ["red"]},
        {"q": pa.array([], pa.string()), "a": pa.array([], pa.string())},
        {"q": ["How many?"], "a": [5], "more": ["x"]},
        {"q": ["Who?"]},
        {"q": pa.array(["Where?"]).dictionary_encode(), "a": pa.array(["here"], pa.large_string())},
    ]
    for number, shard in enumerate(shards):
        pq.write_table(pa.table(shard), folder / f"train-{number:05}-of-00005.parquet")
    columns.write_text("source: own\nquestion: q\nanswer: a\n")
    out = tmp_path / "out.parquet"
    result = import_data("hf", [folder], out, options=Options(columns=columns), strict=False)
    assert [sample.ground_truth for sample in read_samples(out)] == ["red", "5", "here"]
    (problem,) = result["problems"]
    assert (problem["file"], problem["row"]) == (str(folder / "train-00003-of-00005.parquet"), 0)
    assert problem["what"] == "the row has no value for a (column `a`)"


@pytest.mark.parametrize("format_", ["hf", "verl"])
@pytest.mark.parametrize("name", ["rows.jsonl.gz", "rows.parquet.zst", "rows"])
def test_a_compressed_file_gets_advice_to_unpack_it(format_: str, name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"packed")
    columns = tmp_path / "columns.yaml"
    columns.write_text("source: own\nquestion: q\nanswer: a\n")
    options = Options(columns=columns if format_ == "hf" else None)
    with pytest.raises(DataError, match="decompress it") as caught:
        import_data(format_, [tmp_path / name], tmp_path / "out.parquet", options=options, strict=False)
    assert name in str(caught.value)


def test_rows_without_ids_from_several_files_are_all_kept(tmp_path: Path) -> None:
    columns = tmp_path / "columns.yaml"
    columns.write_text("source: own\nquestion: q\nanswer: a\n")
    files = [tmp_path / "train-0.parquet", tmp_path / "train-1.jsonl"]
    parquet(files[0], [{"q": "Which?", "a": "red"}])
    lines(files[1], [{"q": "Who?", "a": "me"}])
    out = tmp_path / "out.parquet"
    result = import_data("hf", files, out, options=Options(columns=columns), strict=False)
    assert result["problems"] == []
    assert [sample.id for sample in read_samples(out)] == ["own/train-0/0", "own/train-1/0"]


def test_a_damaged_shard_loses_only_its_own_rows(tmp_path: Path) -> None:
    folder, columns = tmp_path / "shards", tmp_path / "columns.yaml"
    folder.mkdir()
    for number in range(3):
        parquet(folder / f"train-{number}.parquet", [{"q": f"Which {number}?", "a": "red"}])
    (folder / "train-1.parquet").write_bytes((folder / "train-1.parquet").read_bytes()[:200])
    columns.write_text("source: own\nquestion: q\nanswer: a\n")
    out = tmp_path / "out.parquet"
    result = import_data("hf", [folder], out, options=Options(columns=columns), strict=False)
    assert [sample.question for sample in read_samples(out)] == ["Which 0?", "Which 2?"]
    (problem,) = result["problems"]
    assert "cut short" in problem["what"]
    assert problem["file"] == str(folder / "train-1.parquet")


@pytest.mark.parametrize("format_", ["hf", "verl"])
def test_a_lone_surrogate_in_a_line_loses_only_that_row(format_: str, tmp_path: Path) -> None:
    good = {"data_source": "qa", "prompt": [{"role": "user", "content": "Which?"}], "a": "x"}
    good["reward_model"] = {"ground_truth": "x"}
    odd = good | {"prompt": [{"role": "user", "content": HALF}]}
    file, columns = lines(tmp_path / "qa.jsonl", [good, odd]), tmp_path / "columns.yaml"
    columns.write_text("source: own\nquestion: prompt\nanswer: a\n")
    options = Options(columns=columns if format_ == "hf" else None)
    result = import_data(format_, [file], tmp_path / "out.parquet", options=options, strict=False)
    (problem,) = result["problems"]
    assert (problem["row"], result["kept"]) == (1, 1)


def test_a_file_without_rows_is_reported_by_name(tmp_path: Path) -> None:
    file = lines(tmp_path / "nothing.jsonl", [])
    with pytest.raises(DataError, match="there is no row to import") as caught:
        import_data("verl", [file], tmp_path / "out.parquet", options=Options(), strict=False)
    assert caught.value.where == str(file)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1"])
@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "hf"])
def test_a_wrong_encoding_is_reported_once_per_file(encoding: str, name: str, tmp_path: Path) -> None:
    row = '{"data_source": "é", "prompt": "Which?", "reward_model": {"ground_truth": "3"}}'
    file, columns = tmp_path / ("a.jsonl" if name == "hf" else name), tmp_path / "columns.yaml"
    file.write_text(f"[{row}, {row}]" if file.suffix == ".json" else f"{row}\n" * 3, encoding=encoding)
    columns.write_text("{source: a, question: prompt, answer: data_source}")
    layout, options = ("hf", Options(columns=columns)) if name == "hf" else ("samples", Options())
    with pytest.raises(DataError, match="not UTF-8") as caught:
        import_data(layout, [file], tmp_path / "out.parquet", options=options, strict=False)
    _, told = str(caught.value).splitlines()[:2]
    assert "save the file as UTF-8" in told
    assert (f"{file}, row" in told) == (encoding == "latin-1" and file.suffix == ".jsonl")


BOM = b"\xef\xbb\xbf"


@pytest.mark.parametrize("name", ["easyr1", "mars", "coco", "vstar", "hrbench"])
def test_a_byte_order_mark_in_a_data_file_is_ignored(name: str, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    published, out = MAKERS[name](tmp_path / "in"), tmp_path / "out.parquet"
    plain = import_data(name, published.paths, out, options=published.options, strict=False)
    files = [file for file in tmp_path.rglob("*") if file.suffix in (".json", ".jsonl", ".tsv")]
    assert files
    for file in files:
        file.write_bytes(BOM + file.read_bytes())
    assert import_data(name, published.paths, out, options=published.options, strict=False) == plain


def test_a_picture_outside_the_folder_is_skipped_with_a_fix(tmp_path: Path) -> None:
    inside, outside = tmp_path / "images", tmp_path / "secret.png"
    inside.mkdir()
    for path in (inside / "a.png", outside):
        path.write_bytes(GOOD.images[0].data or b"")
    (inside / "link").symlink_to(tmp_path)
    names = [
        "a.png",
        str(inside / "a.png"),
        str(outside),
        "../secret.png",
        "link/../../secret.png",
        "link/secret.png",
    ]
    rows = [{"problem": "<image>Which?", "answer": "A", "images": [name]} for name in names]
    file = lines(tmp_path / "q.jsonl", rows)
    options = Options(images=inside)
    result = import_data("easyr1", [file], tmp_path / "out.parquet", options=options, strict=False)
    assert [problem["row"] for problem in result["problems"]] == [2, 3, 4]
    assert all("leaves the folder" in problem["what"] for problem in result["problems"])
    assert all("--images" in problem["fix"] for problem in result["problems"])


def test_an_export_to_thyme_keeps_calls_and_refuses_other_tools(tmp_path: Path) -> None:
    run("thyme", tmp_path)
    first = next(t for t in read_trajectories(tmp_path / "out.parquet") if t.calls)
    crop = Crop(0, (1.0, 2.0, 30.0, 40.0), first.calls[0].images[0])
    call = replace(first.calls[0], crops=(crop,), output="kept", seconds=1.5)
    there, back, path = (tmp_path / f"{name}.parquet" for name in ("there", "back", "traces"))
    write_trajectories(path, [replace(first, calls=(call, *first.calls[1:]))])
    export_data("thyme", path, there)
    import_data("thyme", [there], back, options=Options(), strict=True)
    assert next(read_trajectories(back)).calls == (call, *first.calls[1:])
    write_trajectories(path, [replace(first, calls=(replace(call, tool="image_zoom_in_tool"),))])
    with pytest.raises(DataError, match="no calls of image_zoom_in_tool"):
        export_data("thyme", path, tmp_path / "none.parquet")
    assert not (tmp_path / "none.parquet").exists()


@pytest.mark.parametrize(
    ("role", "content", "why"),
    [
        ("assistant", "It is \\boxed{7}.", "must end with an <answer>"),
        (
            "assistant",
            "<sandbox_output>7</sandbox_output> <answer>7</answer>",
            "cannot be separated from the next",
        ),
        ("user", "What came back: a number", "cannot be separated from the next"),
        ("assistant", "An <image>? <answer>7</answer>", "says <image>"),
    ],
)
def test_a_trace_that_would_change_is_not_exported_to_thyme(
    role: str, content: str, why: str, tmp_path: Path
) -> None:
    run("thyme", tmp_path)
    good = next(t for t in read_trajectories(tmp_path / "out.parquet") if t.calls)
    place = max(number for number, message in enumerate(good.messages) if message.role == role)
    changed = list(good.messages)
    changed[place] = replace(changed[place], content=content + "<image>" * len(changed[place].images))
    path, there, back = (tmp_path / f"{name}.parquet" for name in ("traces", "there", "back"))
    write_trajectories(path, [good, replace(good, messages=tuple(changed))])
    result = export_data("thyme", path, there)
    assert [problem["row"] for problem in result["problems"]] == [1]
    assert why in result["problems"][0]["what"]
    assert import_data("thyme", [there], back, options=Options(), strict=True)["kept"] == 1


@pytest.mark.parametrize(
    ("role", "content", "why"),
    [
        ("assistant", "Let me see.", "cannot be separated from the next"),
        ("user", "<sandbox_output>\n7\n</sandbox_output>", "cannot be separated from the next"),
        (None, "No code, and yet", "has no <code>"),
    ],
    ids=["two turns of the assistant", "two outputs", "an output without code"],
)
def test_turns_that_thymes_layout_would_join_or_refuse_are_not_exported(
    role: Literal["assistant", "user"] | None, content: str, why: str, tmp_path: Path
) -> None:
    run("thyme", tmp_path)
    good = next(t for t in read_trajectories(tmp_path / "out.parquet") if t.calls)
    turns = list(good.messages)
    at = next(number for number, turn in enumerate(turns) if turn.role == "assistant")
    if role is None:
        turns[at] = Message("assistant", content)
    else:
        turns.insert(at + (role == "user") + 1, Message(role, content))
    path, there, back = (tmp_path / f"{name}.parquet" for name in ("traces", "there", "back"))
    write_trajectories(path, [good, replace(good, messages=tuple(turns))])
    result = export_data("thyme", path, there)
    assert [problem["row"] for problem in result["problems"]] == [1]
    assert why in result["problems"][0]["what"]
    assert import_data("thyme", [there], back, options=Options(), strict=True)["kept"] == 1


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_a_row_from_a_folder_is_named_by_its_file(ending: str, tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    for shard in range(2):
        answers = ["4", "" if shard else "5", "6"]
        rows = pa.table({"question": ["How many?"] * 3, "answer": answers})
        file = folder / f"train-{shard:05d}-of-00002.{ending}"
        if ending == "parquet":
            pq.write_table(rows, file)
        elif ending == "csv":
            file.write_text("question,answer\n" + "".join(f"How many?,{one}\n" for one in answers))
        else:
            file.write_text("".join(json.dumps(row) + "\n" for row in rows.to_pylist()))
    columns = tmp_path / "columns.yaml"
    columns.write_text("source: {value: mine}\nquestion: question\nanswer: answer\n")
    words = ("data", "import", "hf", folder, "--columns", columns)
    ended = vtune(*words, "--out", tmp_path / "out.parquet", "--json")
    (problem,) = json.loads(ended.out)["problems"]
    assert (problem["file"], problem["row"]) == (str(folder / f"train-00001-of-00002.{ending}"), 1)
    kept = [sample.id for sample in read_samples(tmp_path / "out.parquet")]
    assert kept[-2:] == ["mine/train/3", "mine/train/5"]
    strict = vtune(*words, "--out", tmp_path / "strict.parquet", "--strict")
    assert f"train-00001-of-00002.{ending}, row 1" in strict.err


def test_mentioned_tools_that_are_not_offered_are_reported_unless_tools_are_set(tmp_path: Path) -> None:
    asked = {"check": {"create_kwargs": {}}, "gone": None}
    row = {
        "data_source": "own",
        "prompt": [{"role": "system", "content": "Use check."}, {"role": "user", "content": "How many?"}],
        "reward_model": {"style": "rule", "ground_truth": "3"},
        "extra_info": {"tools_kwargs": asked},
    }
    file = lines(tmp_path / "rows.jsonl", [row])

    def read(*, tools: tuple[str, ...] | None) -> dict[str, Any]:
        options = Options(tools=tools)
        return import_data("verl", [file], tmp_path / "out.parquet", options=options, strict=False)

    ((doubt, count),) = read(tools=None)["doubts"].items()
    assert (doubt[:41], count) == ("`tools_kwargs` of check, which the row do", 1)
    assert read(tools=())["doubts"] == {}


def test_a_prompt_that_asks_for_unknown_calls_is_reported_until_removed(tmp_path: Path) -> None:
    asked = (
        "Answer the given question. You must conduct reasoning inside <think> and </think>. You can call a "
        "search engine by <search> query </search>. For example, <answer> Beijing </answer>. Question: Who?\n"
    )
    row = {
        "data_source": "nq",
        "prompt": [{"role": "user", "content": asked}],
        "reward_model": {"style": "rule", "ground_truth": {"target": ["the Beatles"]}},
    }
    file, out = lines(tmp_path / "rows.jsonl", [row]), tmp_path / "out.parquet"
    ((doubt, count),) = import_data("verl", [file], out, options=Options(), strict=False)["doubts"].items()
    assert (doubt[:30], count) == ("a prompt that mentions <search", 1)
    options = Options(tools=("text_search_tool",))
    assert import_data("verl", [file], out, options=options, strict=False)["doubts"] == {}
    (sample,) = read_samples(out)
    assert (sample.question, sample.tools) == ("Who?", ("text_search_tool",))


def test_a_call_that_tools_do_not_remove_is_reported_with_a_fix(tmp_path: Path) -> None:
    row = {
        "data_source": "fvqa",
        "prompt": [{"role": "user", "content": "Who? Write <text_search>query</text_search>."}],
        "reward_model": {"style": "rule", "ground_truth": "the Beatles", "candidate_answers": "[]"},
    }
    file, out = lines(tmp_path / "rows.jsonl", [row]), tmp_path / "out.parquet"
    (doubt,) = import_data("mmsearch", [file], out, options=Options(), strict=False)["doubts"]
    assert doubt.endswith("<text_search>, a call that no tool handles: remove these words from the rows")
    import_data("mmsearch", [file], out, options=Options(verifier="exact"), strict=False)
    (sample,) = read_samples(out)
    assert sample.verifier_parm == {"match": "squad"}


def test_four_numbers_not_declared_as_a_box_are_reported(tmp_path: Path) -> None:
    file = lines(tmp_path / "rows.jsonl", [{"problem": "Where?", "answer": "[10, 20, 30.5, 40]"}])
    out = tmp_path / "out.parquet"
    result = import_data("easyr1", [file], out, options=Options(), strict=False)
    ((doubt, count),) = result["doubts"].items()
    assert count == 1
    assert "--verifier grounding or detection" in doubt
    said = Options(verifier="math")
    assert import_data("easyr1", [file], out, options=said, strict=False)["doubts"] == {}


def test_categories_with_an_uncertain_count_are_reported(tmp_path: Path) -> None:
    result = run("coco", tmp_path)
    assert result["passed_over"] == {UNCERTAIN: {"dog": 1}}
    capture = Console(width=200)
    with capture.capture() as shown:
        capture.print(render_import(result))
    (line,) = [row for row in shown.get().splitlines() if row.startswith("passed over, 1 in all")]
    assert line.endswith("16 px a side): dog 1")
