from dataclasses import replace
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import ExifTags, Image

from tests.runs.commands import vtune
from tests.schema.records import SAMPLE
from vtune.errors import DataError, RecipeError
from vtune.report.samples import describe_problem
from vtune.runs.data.validating import check_data, validate
from vtune.runs.plan.self_test import bombs
from vtune.schema.message import Message, Picture
from vtune.schema.parquet import write_samples
from vtune.schema.sample import Evidence
from vtune.schema.sample_row import SAMPLE_COLUMNS


def encoded(width: int, height: int) -> bytes:
    content = BytesIO()
    Image.new("RGB", (width, height)).save(content, "PNG")
    return content.getvalue()


GOOD = replace(SAMPLE, images=(Picture(data=encoded(60, 50)),))

BAD = {
    "unknown verifier": (replace(GOOD, verifier="chioce"), "unknown verifier 'chioce'"),
    "unknown tool": (replace(GOOD, tools=("shell",)), "unknown tool 'shell'"),
    "ground truth that its verifier rejects": (replace(GOOD, ground_truth="Z"), "names no single option"),
    "source called as the row over all": (replace(GOOD, source="all"), "data_source 'all' is taken"),
    "source called as an evaluation": (replace(GOOD, source="eval/x"), "data_source 'eval/x' is taken"),
    "no picture": (replace(GOOD, images=(Picture(path="none.png"),)), "no picture at"),
    "broken picture": (replace(GOOD, images=(Picture(data=b"no"),)), "a picture cannot be opened (2 bytes)"),
    "evidence outside": (replace(GOOD, evidence=(Evidence("x", 0, (0, 0, 61, 9)),)), "leaves image 0"),
    "evidence in shares of the sides": (
        replace(GOOD, evidence=(Evidence("x", 0, (0.2, 0, 0.5, 1)),)),
        "lies in the first pixel of image 0",
    ),
}


def test_a_good_file_has_no_problem(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(encoded(60, 50))
    path = tmp_path / "good.parquet"
    write_samples(path, [GOOD, replace(GOOD, id="signs/2", images=(Picture(path="a.png"),))])
    assert validate([path]) == {"rows": 2, "by_source": {"signs": 2}, "turned": 0, "problems": []}
    check_data([path])


def test_pictures_with_exif_rotation_are_counted_and_reported(tmp_path: Path) -> None:
    exif, rows = Image.Exif(), [replace(GOOD, id="signs/upright")]
    for orientation in (1, 6):
        exif[ExifTags.Base.Orientation] = orientation
        for kind in ("JPEG", "PNG", "WEBP"):
            out = BytesIO()
            Image.new("RGB", (60, 50)).save(out, kind, exif=exif)
            picture = Picture(data=out.getvalue())
            rows.append(replace(GOOD, id=f"signs/{orientation}/{kind}", images=(picture,)))
    write_samples(tmp_path / "turned.parquet", rows)
    assert (
        vtune("data", "export", "samples", tmp_path / "turned.parquet", "--out", tmp_path / "t.jsonl").code
        == 0
    )
    for words in (
        ("validate", tmp_path / "turned.parquet"),
        ("import", "samples", tmp_path / "t.jsonl", "--out", tmp_path / "again.parquet"),
    ):
        ended = vtune("data", *words)
        assert (ended.code, "warning: 3 of these rows have a picture that EXIF rotates" in ended.out) == (
            0,
            True,
        )


@pytest.mark.parametrize(("bad", "what"), BAD.values(), ids=list(BAD))
def test_each_kind_of_bad_row_is_found_with_file_row_and_fix(bad: type, what: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.parquet"
    write_samples(path, [replace(GOOD, id="signs/0"), bad])
    result = validate([path])
    (problem,) = result["problems"]
    assert result["by_source"] == {"signs": 1}
    assert (problem["file"], problem["row"]) == (str(path), 1)
    assert what in problem["what"]
    assert problem["fix"]
    assert "\n" not in describe_problem(problem)
    if what.startswith(("unknown verifier", "unknown tool")):
        with pytest.raises(
            RecipeError, match=f"{what}: neither vtune nor a file under `uses` adds it"
        ) as told:
            check_data([path])
        assert told.value.where == f"{path}, row 1"
        assert told.value.fix.startswith(
            "list the file that adds it, `uses: [./mine.py]`, in the recipe or suite"
        )
        return
    with pytest.raises(DataError, match="1 problem"):
        check_data([path])


def test_a_box_outside_gets_advice_on_corners_and_spaces(tmp_path: Path) -> None:
    write_samples(tmp_path / "bad.parquet", [BAD["evidence outside"][0]])
    (problem,) = validate([tmp_path / "bad.parquet"])["problems"]
    assert "`corners` and `space`" in problem["fix"]


def test_all_bad_rows_of_all_files_are_listed(tmp_path: Path) -> None:
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet", tmp_path / "none.parquet"]
    many = [replace(GOOD, id=f"signs/{n}", ground_truth="Z") for n in range(12)]
    write_samples(paths[0], [GOOD])
    write_samples(paths[1], [*many[2:], GOOD])
    problems = validate(paths)["problems"]
    assert [(Path(p["file"]).stem, p["row"]) for p in problems] == [
        *(("b", row) for row in range(11)),
        ("none", None),
    ]
    assert f"id 'signs/1' is also in {paths[0]}, row 0" in problems[10]["what"]
    with pytest.raises(DataError, match=r"b.parquet, rows 0, 1, 2, 3, 4 and 5 more: the ground truth 'Z'"):
        check_data(paths)
    ended = vtune("data", "validate", *paths, "--problems", tmp_path / "bad.txt")
    assert ended.code == 2
    assert "rows 0, 1, 2, 3, 4 and 5 more: the ground truth 'Z'" in ended.out
    assert "--problems FILE writes all of them" in ended.out
    assert len((tmp_path / "bad.txt").read_text().splitlines()) == 12


def test_an_empty_question_is_a_problem_of_its_row(tmp_path: Path) -> None:
    empty = [
        replace(GOOD, id=f"empty/{n}", prompt=(Message("user", text),), images=(), evidence=())
        for n, text in enumerate(["", "  ", "\n"])
    ]
    write_samples(tmp_path / "a.parquet", [GOOD, *empty])
    problems = validate([tmp_path / "a.parquet"])["problems"]
    assert [(one["row"], one["what"]) for one in problems] == [
        (n, "the question is empty") for n in (1, 2, 3)
    ]


def test_a_prompt_that_ends_with_the_answer_is_a_problem_of_its_row(tmp_path: Path) -> None:
    write_samples(tmp_path / "a.parquet", [GOOD])
    (row,) = pq.read_table(str(tmp_path / "a.parquet")).to_pylist()
    answered = [*row["prompt"], {"role": "assistant", "content": "<answer>B</answer>"}]
    odd = row | {"prompt": answered, "extra_info": row["extra_info"] | {"id": "signs/2"}}
    pq.write_table(pa.Table.from_pylist([row, odd], schema=SAMPLE_COLUMNS), str(tmp_path / "b.parquet"))
    (problem,) = validate([tmp_path / "b.parquet"])["problems"]
    assert (problem["row"], problem["what"]) == (1, "the prompt ends with the assistant's turn")
    with pytest.raises(DataError, match="1 problem"):
        check_data([tmp_path / "b.parquet"])


def test_the_suggested_command_includes_custom_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_samples(tmp_path / "s.parquet", [replace(SAMPLE, verifier="math", ground_truth="")])
    own = SimpleNamespace(path="my parts/near.py")
    monkeypatch.setattr("vtune.runs.data.validating.used", lambda: (own,))
    with pytest.raises(DataError) as refused:
        check_data([tmp_path / "s.parquet"])
    assert "validate FILE… --problems OUT --uses 'my parts/near.py'` lists" in str(refused.value.fix)


def test_the_place_of_a_broken_row_is_given_once(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_samples(path, [GOOD, replace(GOOD, id="x", verifier="")])
    (problem,) = validate([path])["problems"]
    assert problem["what"].endswith("(column `reward_model.verifier`)")


@pytest.mark.parametrize("bomb", sorted(bombs()))
def test_a_row_with_a_decompression_bomb_is_listed_with_file_and_fix(tmp_path: Path, bomb: str) -> None:
    rows = [GOOD, replace(GOOD, id="bad/1", images=(Picture(data=bombs()[bomb]),), evidence=())]
    write_samples(tmp_path / "a.parquet", rows)
    result = validate([tmp_path / "a.parquet"])
    (problem,) = result["problems"]
    assert (problem["file"], problem["row"]) == (str(tmp_path / "a.parquet"), 1)
    assert "a picture cannot be opened" in problem["what"]
    assert "store a PNG or JPEG of at most 64 Mi pixels and 2000:1" in problem["fix"]
    assert vtune("data", "validate", tmp_path / "a.parquet").code in (1, 2)


def test_an_unusable_file_is_reported_with_a_fix(tmp_path: Path) -> None:
    whole, cut, photo = tmp_path / "whole.parquet", tmp_path / "cut.parquet", tmp_path / "a.jpg"
    write_samples(whole, [GOOD])
    cut.write_bytes(whole.read_bytes()[:-9])
    photo.write_bytes(encoded(9, 9))
    for path, what, remedy in (
        (cut, "the Parquet file is cut short", "copy, download or make it again"),
        (photo, "not a Parquet file", "give a Parquet file"),
        (tmp_path, "it is a folder", "name files of it: cut.parquet, whole.parquet"),
    ):
        told = vtune("data", "validate", path)
        assert told.code == 2
        assert what in told.out
        assert remedy in told.out
        assert "data validate" not in told.out
        assert "0 of 0" not in told.out
        with pytest.raises(DataError, match="1 problem") as caught:
            check_data([path])
        assert caught.value.fix == "give other files, or make these again"
