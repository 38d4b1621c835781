"""Parquet snapshots: the files of a split, the columns that are read, and the forms of a picture."""

import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.data.benchmarks import raising
from tests.data.formats.published import jpeg, parquet
from tests.data.formats.test_memory import MEGABYTE, bitmap
from vtune.data.shards import ShardRow, Table, files_of, scan_shards
from vtune.errors import DataError

TABLE = Table(
    split="test",
    columns={"id": "pid", "question": "question"},
    may={"options": "options"},
    pictures=("decoded_image",),
)


def row(number: int, **more: Any) -> dict[str, Any]:
    return {
        "pid": str(number),
        "question": f"Question {number}?",
        "decoded_image": {"bytes": jpeg(number), "path": None},
        **more,
    }


def read_shards(path: Path, table: Table) -> Iterator[ShardRow]:
    return raising(scan_shards(path, table))


def names(folder: Path, table: Table = TABLE) -> list[str]:
    return [file.relative_to(folder).as_posix() for file in files_of(folder, table)]


@pytest.mark.parametrize(
    ("held", "found"),
    [
        (["test.parquet", "testmini.parquet", "test_text_only.parquet"], ["test.parquet"]),
        (
            ["data/test-00001-of-00002-0a1b.parquet", "data/test-00000-of-00002-2c3d.parquet", "a.parquet"],
            ["data/test-00000-of-00002-2c3d.parquet", "data/test-00001-of-00002-0a1b.parquet"],
        ),
        (["default/test/0000.parquet", "default/train/0000.parquet"], ["default/test/0000.parquet"]),
        (["data/test-mini-00000-of-00001.parquet", "data/test-00000-of-00001.parquet"],
         ["data/test-00000-of-00001.parquet"]),
    ],
)  # fmt: skip
def test_a_split_is_found_by_its_file_names(tmp_path: Path, held: list[str], found: list[str]) -> None:
    for name in held:
        parquet(tmp_path / name, [row(0)])
    assert names(tmp_path) == found


def test_a_configuration_is_a_folder(tmp_path: Path) -> None:
    for config in ("one", "two"):
        parquet(tmp_path / config / "test-00000-of-00001.parquet", [row(0)])
    two = Table(split="test", config="two", columns=TABLE.columns)
    assert names(tmp_path, two) == ["two/test-00000-of-00001.parquet"]
    with pytest.raises(DataError, match="no Parquet file of the split `test` of `three`"):
        files_of(tmp_path, Table(split="test", config="three", columns={}))


def test_a_missing_shard_is_an_error(tmp_path: Path) -> None:
    parquet(tmp_path / "test-00000-of-00003.parquet", [row(0)])
    parquet(tmp_path / "test-00002-of-00003.parquet", [row(2)])
    with pytest.raises(DataError, match="shard test-00001-of-00003 is missing"):
        files_of(tmp_path, TABLE)


def test_a_folder_without_the_split_lists_what_it_has(tmp_path: Path) -> None:
    parquet(tmp_path / "train.parquet", [row(0)])
    with pytest.raises(DataError, match=r"(?s)no Parquet file of the split `test`.*it has train.parquet"):
        list(read_shards(tmp_path, TABLE))


def test_rows_have_our_column_names_and_pictures_in_order(tmp_path: Path) -> None:
    (tmp_path / "by_path.jpg").write_bytes(jpeg(9))
    first = row(0, second=[{"bytes": jpeg(1), "path": None}, {"bytes": None, "path": "by_path.jpg"}])
    parquet(tmp_path / "test-00000-of-00002.parquet", [first, row(1, second=None)])
    parquet(tmp_path / "test-00001-of-00002.parquet", [row(2, second=[], options=["a", "b"])])
    table = Table(split="test", columns=TABLE.columns, may=TABLE.may, pictures=("decoded_image", "second"))
    found = list(read_shards(tmp_path, table))
    assert [one.values["id"] for one in found] == ["0", "1", "2"]
    assert [one.values["options"] for one in found] == [None, None, ["a", "b"]]
    assert found[0].pictures == (jpeg(0), jpeg(1), jpeg(9))
    assert [len(one.pictures) for one in found] == [3, 1, 1]
    assert found[2].place == f"{tmp_path / 'test-00001-of-00002.parquet'}, row 0"
    assert set(found[0].values) == {"id", "question", "options"}


def test_a_missing_column_is_reported_before_any_row_is_read(tmp_path: Path) -> None:
    parquet(tmp_path / "test-00000-of-00002.parquet", [row(0)])
    parquet(tmp_path / "test-00001-of-00002.parquet", [{"pid": "1", "decoded_image": None}])
    seen: list[Any] = []
    with pytest.raises(DataError, match=r"(?s)no column `question`.*test-00001-of-00002"):
        seen.extend(scan_shards(tmp_path, TABLE))
    assert not seen


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"bytes": None, "path": None}, "neither bytes nor a path"),
        ({"bytes": None, "path": "gone.png"}, "no picture at"),
        ({"bytes": None, "path": "../outside.png"}, "leaves the folder"),
    ],
)
def test_a_missing_picture_is_an_error_of_its_row(tmp_path: Path, value: Any, said: str) -> None:
    rows: Sequence[dict[str, Any]] = [row(0), row(1, decoded_image=value), row(2)]
    file = parquet(tmp_path / "test.parquet", list(rows))
    found = list(scan_shards(file, TABLE))
    assert [isinstance(one, ShardRow) for one in found] == [True, False, True]
    error = found[1]
    assert isinstance(error, DataError)
    assert f"{file}, row 1" in str(error)
    assert said in str(error)
    with pytest.raises(DataError, match="row 1"):
        list(read_shards(file, TABLE))


def test_a_missing_picture_and_a_non_text_question_are_reported(tmp_path: Path) -> None:
    file = parquet(tmp_path / "test.parquet", [row(0), row(1, decoded_image=None)])
    found = list(read_shards(file, TABLE))
    assert found[0].picture == jpeg(0)
    with pytest.raises(DataError, match=r"(?s)no picture.*row 1"):
        _ = found[1].picture
    assert found[0].text("question") == "Question 0?"
    assert found[0].text("options") == ""
    numbers = parquet(tmp_path / "other" / "test.parquet", [row(0) | {"question": 7}])
    with pytest.raises(DataError, match="`question` is int, not a text"):
        next(read_shards(numbers, TABLE)).text("question")


def test_shard_rows_are_read_in_bounded_memory(tmp_path: Path) -> None:
    for shard in range(2):
        rows = [
            row(n, other=bitmap(n)) | {"decoded_image": {"bytes": bitmap(n), "path": None}} for n in range(30)
        ]
        parquet(tmp_path / f"test-{shard:05d}-of-00002.parquet", rows)
    tracemalloc.start()
    count = sum(len(one.picture) > MEGABYTE // 2 for one in read_shards(tmp_path, TABLE))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert count == 60
    assert peak < 45 * MEGABYTE, f"{peak / MEGABYTE:.0f} MB"
