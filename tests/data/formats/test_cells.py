"""User tables and JSON lines: samples hold exactly what is written in a cell."""

import csv
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.data.formats.published import jpeg, lines
from vtune.data.formats.building import Options
from vtune.data.formats.cells import TextFile, text_rows
from vtune.data.formats.source import read_rows
from vtune.data.formats.table import FORMATS
from vtune.errors import DataError
from vtune.runs.data.importing import import_data
from vtune.schema.parquet import read_samples
from vtune.schema.sample import Sample

MAP = "source: my\nquestion: q\nanswer: a\nid: id\n"


def mapped(path: Path, more: str = "") -> list[Sample | DataError]:
    columns = (path if path.is_dir() else path.parent).with_name(f"{path.name}.yaml")
    columns.write_text(MAP + more)
    return [found for _, found in FORMATS["hf"].read(path, Options(columns=columns))]  # type: ignore[misc]


def samples(path: Path, more: str = "") -> list[Sample]:
    found = mapped(path, more)
    for one in found:
        assert isinstance(one, Sample), str(one)
    return found  # type: ignore[return-value]


def table(path: Path, *records: list[str], separator: str = ",") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter=separator).writerows(records)
    return path


def answers(found: list[Sample]) -> list[tuple[str, str]]:
    return [(sample.id, sample.ground_truth) for sample in found]


HEAD = ["id", "q", "a"]
KINDS = pytest.mark.parametrize(("name", "separator"), [("my.csv", ","), ("my.tsv", "\t")])


@KINDS
@pytest.mark.parametrize(
    "cells",
    [
        pytest.param([("001", "007"), ("002", "1.50"), ("003", "3")], id="zeros"),
        pytest.param([("1", "12"), ("01", "1e3"), ("1.0", "+5")], id="numbers that are alike"),
        pytest.param([("12345678901234567", "b"), ("12345678901234568", "c")], id="long ids"),
        pytest.param([("1", "True"), ("2", "False")], id="truths"),
        pytest.param([("1", "2021-05-01"), ("2", "10:30")], id="dates"),
        pytest.param([("1", "None"), ("2", "NA"), ("3", "nan"), ("null", "inf")], id="words for nothing"),
    ],
)
def test_ids_and_answers_of_a_table_are_kept_as_written(
    name: str, separator: str, cells: list[tuple[str, str]], tmp_path: Path
) -> None:
    file = table(tmp_path / name, HEAD, *([i, "Which?", a] for i, a in cells), separator=separator)
    assert answers(samples(file)) == [(f"my/{i}", a) for i, a in cells]
    result = import_data(
        "hf",
        [file],
        tmp_path / "out.parquet",
        options=Options(columns=tmp_path.with_name(f"{name}.yaml")),
        strict=True,
    )
    assert result["kept"] == len(cells)
    assert answers(list(read_samples(tmp_path / "out.parquet"))) == [(f"my/{i}", a) for i, a in cells]


def test_an_empty_cell_is_a_missing_value_and_changes_no_other_cell(tmp_path: Path) -> None:
    big = "12345678901234567"
    file = table(tmp_path / "my.csv", HEAD, [big, "Which?", "b"], ["", "Which?", "d"], ["3", "Which?", ""])
    first, second, third = mapped(file)
    assert isinstance(first, Sample)
    assert isinstance(second, Sample)
    assert (first.id, second.id) == (f"my/{big}", "my/1")
    assert isinstance(third, DataError)
    assert "no value for a" in str(third)


@pytest.mark.parametrize("values", [["2021-05-01", "2021-05-02"], ["7", 7, 1.5], ["007", "x"]])
def test_json_lines_keep_texts_and_numbers_apart(values: list[Any], tmp_path: Path) -> None:
    rows = [{"id": f"{number}", "q": "When?", "a": value} for number, value in enumerate(values)]
    wanted = [(f"my/{number}", str(value)) for number, value in enumerate(values)]
    for name in ("my.jsonl", "lines.json"):
        assert answers(samples(lines(tmp_path / name, rows))) == wanted
    array = tmp_path / "my.json"
    array.write_text(f"\ufeff {json.dumps(rows, indent=1)}")
    assert answers(samples(array)) == wanted


@pytest.mark.parametrize("ending", ["csv", "tsv", "jsonl"])
def test_a_folder_of_text_files_is_read_as_written(ending: str, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    for split, number in (("train", "007"), ("test", "1.50")):
        file = folder / f"{split}.{ending}"
        if ending == "jsonl":
            file.parent.mkdir(exist_ok=True)
            lines(file, [{"id": "01", "q": "Which?", "a": number}])
        else:
            separator = "\t" if ending == "tsv" else ","
            table(file, HEAD, ["01", "Which?", number], separator=separator)
    assert answers(samples(folder)) == [("my/01", "007")]
    assert answers(samples(folder, "split: test\n")) == [("my/01", "1.50")]
    with pytest.raises(DataError, match="datasets cannot open it"):
        mapped(folder, "split: dev\n")


@pytest.mark.parametrize("parquet", [True, False])
def test_pictures_are_found_relative_to_their_folder(parquet: bool, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    (folder / "img").mkdir(parents=True)
    (folder / "img/a.jpg").write_bytes(jpeg(1))
    row = {"id": "01", "q": "Which?", "a": "7", "photo": "img/a.jpg"}
    if parquet:
        pq.write_table(pa.Table.from_pylist([row]), folder / "train.parquet")
    else:
        lines(folder / "train.jsonl", [row])
    for path in (folder, next(folder.glob("train.*"))):
        ((picture,),) = [sample.images for sample in samples(path, "images: photo\n")]
        assert picture.data == jpeg(1)


@pytest.mark.parametrize(
    ("card", "written"),
    [
        ('configs: [{config_name: default, data_files: x.csv, sep: ";"}]', "id;q;a\n01;Who?;007\n"),
        (
            "dataset_info: {features: [{name: id, dtype: string}, {name: q, dtype: string}, "
            "{name: a, dtype: int64}]}",
            "id,q,a\n01,Who?,007\n",
        ),
    ],
    ids=["a separator", "types"],
)
def test_a_dataset_card_may_name_the_separator_without_changing_cells(
    card: str, written: str, tmp_path: Path
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "README.md").write_text(f"---\n{card}\n---\n")
    (folder / "x.csv").write_text(written)
    assert answers(samples(folder)) == [("my/01", "007")]


def test_a_file_elsewhere_is_read_in_the_same_way() -> None:
    import fsspec

    with fsspec.open("memory://mine.csv", "wb") as file:
        file.write(b"id,a\n01,007\n")
    read = text_rows([TextFile("memory://mine.csv", ",")])
    assert list(read) == [("memory://mine.csv", 0, {"id": "01", "a": "007"})]


OPTIONS = '["red", "green"]'


@pytest.mark.parametrize(
    ("answer", "choices", "said", "truth"),
    [
        pytest.param("1", OPTIONS, None, "B", id="a number of an option"),
        pytest.param("1.0", OPTIONS, None, "B", id="as pandas writes it beside empty cells"),
        pytest.param("green", OPTIONS, None, "green", id="a text"),
        pytest.param("B", "['red', 'green']", None, "B", id="a letter, and a Python list"),
        pytest.param("1.50", "[1.50, 2.00]", None, "1.5", id="equal to a number of the list"),
        pytest.param("1.50", '["1.50", "2.00"]', None, "1.50", id="a text that looks like a number"),
        pytest.param("007", '["007", "008"]', None, "007", id="zeros"),
        pytest.param("15", '["15 cm", "20 cm"]', None, "15", id="the number of an option's text"),
        pytest.param("1", '["2", "3", "1"]', "number", "B", id="said to be a number"),
        pytest.param("1", '["2", "3", "1"]', "text", "C", id="said to be a text"),
        pytest.param("1", '{"1": "red", "2": "green"}', None, "A", id="a key"),
        pytest.param("True", '["True", "False"]', None, "True", id="a truth"),
        pytest.param("007", "", None, "007", id="no options in this row"),
    ],
)
def test_a_numeric_text_beside_options_counts_as_a_number(
    answer: str, choices: str, said: str | None, truth: str, tmp_path: Path
) -> None:
    file = table(tmp_path / "my.csv", [*HEAD, "c"], ["1", "Which?", answer, choices])
    (sample,) = samples(file, "choices: c\n" + (f"answer_is: {said}\n" if said else ""))
    assert sample.ground_truth == truth


@pytest.mark.parametrize(
    ("cell", "judge", "truth", "verifier", "aliases"),
    [
        pytest.param('["nokia", "nokia 3310"]', "", "nokia", "exact", ["nokia 3310"], id="JSON"),
        pytest.param("['nokia', \"nokia's 3310\"]", "", "nokia", "exact", ["nokia's 3310"], id="Python"),
        pytest.param('["3", "three"]', "", "3", "exact", ["three"], id="a number in words, too"),
        pytest.param('["nokia", "nokia"]', "", "nokia", "exact", None, id="ten people who agree"),
        pytest.param('["3"]', "", "3", "math", None, id="of one"),
        pytest.param('["", "3"]', "", "3", "math", None, id="an empty one"),
        pytest.param('["", "nokia", " ", "3310"]', "", "nokia", "exact", ["3310"], id="empty ones"),
        pytest.param('["no", "none"]', "judge", "no", "judge", ["none"], id="for a model"),
        pytest.param('["no", "none"]', "ocr", "no", "ocr", ["none"], id="for a reading"),
        pytest.param("[1, 2, 30, 40]", "", "[1, 2, 30, 40]", "math", None, id="a box"),
        pytest.param("['a', 1]", "", "['a', 1]", "math", None, id="not texts alone"),
        pytest.param("[sic] nokia", "", "[sic] nokia", "exact", None, id="a text that begins with a bracket"),
        pytest.param('["A"]', "reading", '["A"]', "reading", None, id="of a verifier that reads lists"),
    ],
)
def test_a_cell_with_a_list_of_texts_holds_several_right_answers(
    cell: str, judge: str, truth: str, verifier: str, aliases: list[str] | None, tmp_path: Path
) -> None:
    """As in VLMEvalKit's tables; before, the right answer was the text with brackets and quotes."""
    file = table(tmp_path / "my.tsv", [*HEAD, "by"], ["1", "Which?", cell, judge], separator="\t")
    (sample,) = samples(file, "verifier: {column: by}\n")
    assert (sample.ground_truth, sample.verifier) == (truth, verifier)
    assert sample.verifier_parm.get("aliases") == aliases


@pytest.mark.parametrize("cell", ["[]", '[""]', "[' ', '']"])
def test_a_cell_that_lists_no_answer_is_refused(cell: str, tmp_path: Path) -> None:
    (refused,) = mapped(table(tmp_path / "my.csv", HEAD, ["1", "Which?", cell]))
    assert isinstance(refused, DataError)
    assert refused.what == f"an empty list, {cell}, is no reference answer"
    assert "column `a`" in refused.where


def test_several_letters_beside_options_are_not_alternative_answers(tmp_path: Path) -> None:
    """Otherwise each letter alone would earn full marks, though only all together are right."""
    asked = "Which?\nA. red\nB. green"
    file = table(tmp_path / "my.csv", HEAD, ["1", asked, '["A", "B"]'], ["2", asked, '["B"]'])
    both, one = samples(file)
    assert (both.ground_truth, both.verifier_parm) == ('["A", "B"]', {})
    assert (one.ground_truth, one.verifier) == ("B", "choice")


@pytest.mark.parametrize(
    ("verifier", "takes"), [("exact", True), ("ocr", True), ("judge", True), ("math", False)]
)
def test_several_answers_go_to_each_verifier_that_takes_aliases(
    verifier: str, takes: bool, tmp_path: Path
) -> None:
    row = {"id": "1", "q": "Which?", "a": ["nokia", "nokia 3310"]}
    (found,) = mapped(lines(tmp_path / "my.jsonl", [row]), f"verifier: {verifier}\n")
    if takes:
        assert isinstance(found, Sample)
        assert found.verifier_parm == {"aliases": ["nokia 3310"]}
    else:
        assert isinstance(found, DataError)
        assert "--verifier exact, ocr or judge" in found.fix


def test_a_count_written_as_a_decimal_becomes_a_whole_number(tmp_path: Path) -> None:
    file = table(tmp_path / "my.csv", HEAD, ["1", "How many?", "3.0"], ["2", "How many?", "04"])
    assert answers(samples(file, "verifier: counting\n")) == [("my/1", "3"), ("my/2", "04")]


@pytest.mark.parametrize(
    ("answer", "choices", "why"),
    [
        ("1", '["2", "3", "1"]', "the number or letter of another"),
        ("2", OPTIONS, "option 2 of 2"),
        ("-1", OPTIONS, "option -1 of 2"),
    ],
)
def test_a_number_that_names_no_option_or_two_options_is_refused(
    answer: str, choices: str, why: str, tmp_path: Path
) -> None:
    file = table(tmp_path / "my.csv", [*HEAD, "c"], ["1", "Which?", answer, choices])
    (refused,) = mapped(file, "choices: c\n")
    assert isinstance(refused, DataError)
    assert why in str(refused)
    assert refused.fix


@KINDS
def test_boxes_pictures_and_verifier_options_are_read_from_cells(
    name: str, separator: str, tmp_path: Path
) -> None:
    (tmp_path / "7").write_bytes(jpeg(0))
    file = table(
        tmp_path / name,
        [*HEAD, "pic", "boxes", "parm", "judge"],
        ["1", "How many,\n\tthen?", "3", "7", "[1, 2, 30, 40]", '{"case_sensitive": true}', "ocr"],
        ["2", 'A 5" cup?', "3", "", "", "", ""],
        separator=separator,
    )
    more = "images: pic\nevidence: boxes\nverifier_parm: {column: parm}\nverifier: {column: judge}\n"
    first, second = samples(file, more)
    assert first.question == "How many,\n\tthen?"
    assert (first.images[0].path, first.evidence[0].bbox) == ("7", (1, 2, 30, 40))
    assert (first.verifier, first.verifier_parm) == ("ocr", {"case_sensitive": True})
    assert (second.question, second.images, second.evidence) == ('A 5" cup?', (), ())


@pytest.mark.parametrize(
    ("name", "separator", "named"),
    [
        ("my.csv", ";", "separated by `;`"),
        ("my.csv", "\t", "separated by tabs"),
        ("my.tsv", ",", "separated by `,`"),
    ],
)
@pytest.mark.parametrize("question", ["Which?", "Which, a;b or c\td?"])
def test_a_table_with_the_wrong_separator_for_its_suffix_is_reported(
    name: str, separator: str, named: str, question: str, tmp_path: Path
) -> None:
    file = table(tmp_path / name, HEAD, ["1", question, "x"], separator=separator)
    with pytest.raises(DataError, match="no column `q`") as caught:
        mapped(file)
    assert caught.value.fix == f"its cells are {named}: save it as .csv with commas, or as .tsv with tabs"


def test_a_table_of_one_column_is_reported_with_its_column(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no column `q`") as caught:
        mapped(table(tmp_path / "my.csv", ["text"], ["a;b"]))
    assert caught.value.fix == "it has text"


def test_a_mistyped_column_in_a_map_gets_a_suggestion(tmp_path: Path) -> None:
    file = table(tmp_path / "my.csv", [*HEAD, "photo"], ["1", "Which?", "x", ""])
    with pytest.raises(DataError, match="no column `photos`") as caught:
        mapped(file, "images: photos\n")
    assert caught.value.fix == "did you mean `photo`? it has id, q, a, photo"


@pytest.mark.parametrize("indent", [None, 2], ids=["a line", "many lines"])
def test_an_object_around_the_rows_is_reported_with_the_key_of_the_rows(
    indent: int | None, tmp_path: Path
) -> None:
    """As in DocVQA, TextVQA and VQA; before, the file was one row, or each of its lines a broken row."""
    row = {"id": "1", "q": "Which?", "a": ["x", "y"]}
    held = {
        "dataset_name": "docvqa",
        "dataset_version": "1.0",
        "tags": ["x"],
        "data": [row, row | {"id": "2"}],
    }
    file = tmp_path / "val.json"
    file.write_text(json.dumps(held, indent=indent))
    with pytest.raises(DataError, match="no column `q`") as caught:
        mapped(file)
    assert caught.value.fix == "its rows are under `data`: write that list alone into a file"
    file.write_text(json.dumps(held["data"], indent=indent))
    assert [sample.id for sample in samples(file)] == ["my/1", "my/2"]
    (error,) = (found for _, found in FORMATS["easyr1"].read(lines(tmp_path / "a.json", [held]), Options()))
    assert isinstance(error, DataError)
    assert "its rows are under `data`" in error.fix


@pytest.mark.parametrize("more", [{}, {"turns": [{"role": "user"}], "rows": [{"id": "2"}]}])
def test_an_object_without_a_single_list_of_rows_is_reported_with_its_columns(
    more: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="no column `q`") as caught:
        mapped(lines(tmp_path / "my.jsonl", [{"name": "docvqa", **more}]))
    assert caught.value.fix.startswith("it has name")


def test_one_row_may_span_many_lines(tmp_path: Path) -> None:
    file = tmp_path / "my.json"
    file.write_text(json.dumps({"id": "1", "q": "Which?", "a": "x"}, indent=2))
    assert answers(samples(file)) == [("my/1", "x")]


def test_a_column_may_be_missing_from_the_first_lines(tmp_path: Path) -> None:
    rows = [{"id": "a", "q": "Which?", "a": "x"}] * 150
    file = lines(tmp_path / "my.jsonl", [*rows, rows[0] | {"kind": "chart"}])
    assert samples(file, "ability: {column: kind}\n")[-1].ability == "chart"
    with pytest.raises(DataError, match="no column `other`") as caught:
        mapped(file, "ability: {column: other}\n")
    assert "id, q, a, kind" in caught.value.fix


@pytest.mark.parametrize(
    ("content", "kept", "why"),
    [
        pytest.param(b"id,q,a\n1,Who, me?,x\n2,Who?,y\n", 1, "4 cells for 3 columns", id="a comma"),
        pytest.param(b'id,q,a\n1,Who?,x\n2,"Who?,y\n3,Who?,z\n', 1, "a quote is not closed", id="a quote"),
        pytest.param(b"id,q,a\n1,Who?,x\n2,W\xe4r?,y\n", 1, "begins in line 3", id="another encoding"),
        pytest.param(b"id,q,a\r1,Who?,x\r2,Who?,y\r", 0, "not a table", id="line ends of old"),
    ],
)
def test_a_broken_table_is_reported_with_the_row_and_a_fix(
    content: bytes, kept: int, why: str, tmp_path: Path
) -> None:
    file = tmp_path / "my.csv"
    file.write_bytes(content)
    found = mapped(file)
    assert sum(isinstance(one, Sample) for one in found) == kept
    (refused,) = (one for one in found if isinstance(one, DataError))
    assert why in refused.what
    assert refused.where.startswith(f"{file}, row ")
    assert refused.fix


def test_windows_tables_and_short_rows_are_read(tmp_path: Path) -> None:
    file = tmp_path / "my.csv"
    file.write_bytes(b"\xef\xbb\xbfid,q,a,note\r\n01,Who?,x\r\n\r\n02,Who?,y,,\r\n")
    assert answers(samples(file)) == [("my/01", "x"), ("my/02", "y")]


def test_a_line_that_is_not_json_loses_only_itself(tmp_path: Path) -> None:
    row = {"id": "1", "q": "Which?", "a": "x"}
    first, second, third = mapped(lines(tmp_path / "my.jsonl", [row, '{"q": ', row | {"id": "2"}]))
    assert isinstance(first, Sample)
    assert isinstance(third, Sample)
    assert isinstance(second, DataError)
    assert "not JSON" in second.what


def test_a_line_that_ends_inside_a_string_is_reported_as_such(tmp_path: Path) -> None:
    (tmp_path / "my.jsonl").write_text('{"id": "1", "q": "Whi\n')
    (broken,) = mapped(tmp_path / "my.jsonl")
    assert isinstance(broken, DataError)
    assert "Unterminated string" in broken.what


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_rows_of_text_are_read_in_bounded_memory(ending: str, tmp_path: Path) -> None:
    rows = [{"id": f"{number}", "q": f"{number}" * 100_000, "a": "x"} for number in range(10, 70)]
    file = tmp_path / f"my.{ending}"
    if ending == "csv":
        table(file, HEAD, *([*row.values()] for row in rows))
    else:
        lines(file, rows)
    columns = tmp_path / "columns.yaml"
    columns.write_text(MAP)
    entries = FORMATS["hf"].read(file, Options(columns=columns))
    next(entries)  # warm-up for one-time imports
    tracemalloc.start()
    count = 1 + sum(1 for _ in entries)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == len(rows)
    assert peak < file.stat().st_size / 2


def pictured(path: Path, **columns: Any) -> Sample | DataError:
    """Import a row of ms-swift's GRPO layout with a map that names a column of pictures."""
    part = [{"type": "image", "image": "a.jpg"}, {"type": "text", "text": "Which?"}]
    row = {"id": "1", "q": [{"role": "user", "content": part}], "a": "7", "images": None}
    (path / "a.jpg").write_bytes(jpeg(0))
    (found,) = mapped(lines(path / "my.jsonl", [row | columns]), "images: images\n")
    return found


def test_pictures_inside_turns_are_read(tmp_path: Path) -> None:
    found = pictured(tmp_path)
    assert isinstance(found, Sample)
    assert (found.question, [one.data for one in found.images]) == ("Which?", [jpeg(0)])
    # verl repeats the pictures in a column.
    assert pictured(tmp_path, images=["a.jpg"]) == found
    twice = pictured(tmp_path, images=["a.jpg", "a.jpg"])
    assert isinstance(twice, DataError)
    assert (twice.what, twice.fix) == (
        "pictures are given both in the turns and beside them",
        "keep one of the two",
    )


@pytest.mark.parametrize("asked", [5, True, {"role": "user"}])
def test_a_broken_question_loses_only_its_row(asked: object, tmp_path: Path) -> None:
    assert isinstance(pictured(tmp_path, q=asked), DataError)


def test_an_ms_swift_template_is_refused_but_an_answer_format_is_not(tmp_path: Path) -> None:
    shown = {"q": "<image>Find <ref-object>: <bbox>", "images": ["a.jpg"]}
    found = pictured(tmp_path, **shown, objects={"ref": ["dog"], "bbox": [[1, 2, 3, 4]]})
    assert isinstance(found, DataError)
    assert "<ref-object> is a placeholder for `objects`" in found.what
    assert "write them into the question" in found.fix
    assert isinstance(pictured(tmp_path, **shown, objects={"ref": [], "bbox": []}), Sample)


def test_blank_lines_are_skipped(tmp_path: Path) -> None:
    file = lines(tmp_path / "my.jsonl", [{"id": "1", "q": "?", "a": "7"}])
    file.write_text(f"\n{file.read_text()}\n\n{{\n")
    assert [place.row for place, _ in read_rows(file)] == [0, 1]
    assert [row for _, row, _ in text_rows([TextFile(str(file), None)])] == [0, 1]
