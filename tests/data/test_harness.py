"""MMMU from VLMEvalKit's TSV and from its authors' folders: what rows become."""

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from vtune.data.formats import specimens_tsv
from vtune.data.formats.building import Options
from vtune.data.formats.likely import check_look
from vtune.data.formats.specimens import coded
from vtune.data.harness import UNSHOWN, scan_mmmu, scan_mmmu_pro, scan_mmmu_pro_vision
from vtune.errors import DataError
from vtune.schema.sample import Sample
from vtune.verifiers import check_ground_truth, verdict_on


@pytest.mark.parametrize(
    ("truth", "verifier", "right", "wrong"),
    [
        ("1,234.5", "math", ["1234.5", "1,234.5 km"], ["1234"]),
        ("-0.5", "math", ["−.5", "-1/2"], ["0.5"]),
        ("['1', 'one']", "exact", ["1", "one"], ["2"]),
        ("Heart", "exact", ["heart."], ["1"]),
    ],
)
def test_an_open_question_with_a_number_is_right_however_it_is_written(
    tmp_path: Path, truth: str, verifier: str, right: list[str], wrong: list[str]
) -> None:
    path = specimens_tsv.mmmu(tmp_path).path
    path.write_text(path.read_text().replace("['1', 'one']", truth))
    _, found = scan_mmmu(path)
    assert isinstance(found, Sample)
    assert found.verifier == verifier
    check_ground_truth(found)
    for reply in right + wrong:
        assert verdict_on(f"<answer>{reply}</answer>", found).score == float(reply in right), reply


def test_a_picture_that_nothing_refers_to_is_counted(tmp_path: Path) -> None:
    path = specimens_tsv.mmmu(tmp_path).path
    whole, _ = scan_mmmu(path)
    path.write_text(path.read_text().replace("<image 2>", "<image2>"))
    misspelt, _ = scan_mmmu(path)
    assert isinstance(whole, Sample)
    assert isinstance(misspelt, Sample)
    assert (len(whole.images), whole.extra.get(UNSHOWN)) == (2, None)
    assert (len(misspelt.images), misspelt.extra.get(UNSHOWN)) == (1, 1)


TEXT, IMAGE = pa.string(), pa.struct({"bytes": pa.binary(), "path": pa.string()})


def row(number: int, **values: Any) -> dict[str, Any]:
    """A row as on the hub; its pictures are given by number."""
    names = [f"image_{one}" for one in range(1, 8)]
    texts = {
        "id": f"validation_Art_{number}",
        "question": "<image 1>?",
        "options": "[]",
        "subfield": "Frescos",
    }
    return {**texts, **dict.fromkeys(names), **values}


def held(number: int) -> dict[str, Any]:
    return {"bytes": base64.b64decode(coded(number)), "path": f"{number}.png"}


def published(file: Path, rows: list[dict[str, Any]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    fields = {name: IMAGE if name.startswith("image") else TEXT for name in rows[0]}
    pq.write_table(pa.Table.from_pylist(rows, pa.schema(fields)), file)


def test_the_folder_of_mmmu_asks_what_the_tsv_asks(tmp_path: Path) -> None:
    rows = [
        row(
            1,
            question="<image 1> Is the sign as in <image 2>?",
            options="['yes', 'no']",
            answer="A",
            image_1=held(0),
            image_2=held(1),
        ),
        row(2, question="How many signs does <image 1> show?", answer="['1', 'one']", image_1=held(0)),
    ]
    root = tmp_path / "MMMU"
    published(root / "Art" / "validation-00000-of-00001.parquet", rows)
    published(root / "Art" / "dev-00000-of-00001.parquet", rows)
    published(root / "Music" / "validation-00000-of-00001.parquet", [rows[1] | {"id": "validation_Music_1"}])
    *art, music = scan_mmmu(root)
    for found, wanted in zip(art, scan_mmmu(specimens_tsv.mmmu(tmp_path).path), strict=True):
        assert isinstance(found, Sample)
        assert isinstance(wanted, Sample)
        assert found.extra["category"] == wanted.extra["category"] == "Art"
        same = replace(found, id=wanted.id, source=wanted.source, extra=wanted.extra)
        assert same == wanted
    assert isinstance(music, Sample)
    check_look("mmmu", root, Options())
    assert (music.id, music.extra["category"]) == ("MMMU/validation_Music_1", "Music")


def test_numerals_in_parentheses_stay_in_options(tmp_path: Path) -> None:
    file = tmp_path / "MMMU_Pro" / "standard (10 options)" / "test-00000-of-00001.parquet"
    rows = [
        row(1, options="['(I) only', 'both', 3]", answer="C", subject="Art", image_1=held(0)),
        row(2, options="['(A) red', '(B) blue']", answer="B", subject="Art", image_1=held(0)),
    ]
    published(file, rows)
    for path in (tmp_path / "MMMU_Pro", file.parent, file):
        found = [one.choices for one in scan_mmmu_pro(path) if isinstance(one, Sample)]
        assert found == [("(I) only", "both", "3"), ("red", "blue")]
    vision = file.parent.with_name("vision") / file.name
    published(
        vision, [{"id": "a", "image": held(0), "options": "['x', 'y']", "answer": "B", "subject": "Art"}]
    )
    (found,) = scan_mmmu_pro_vision(tmp_path / "MMMU_Pro")
    assert isinstance(found, Sample)
    assert (found.ground_truth, found.choices, found.id) == ("B", ("x", "y"), "MMMU_Pro_V/a")


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"image_1": None, "image_2": held(1)}, "a picture is missing"),
        ({"image_1": None}, "a picture is missing"),
        ({"id": ""}, "is empty or appears twice"),
        ({"question": "<image 2>?"}, "refers to picture 2 of 1"),
    ],
)
def test_an_odd_row_of_the_folder_is_named(tmp_path: Path, changed: dict[str, Any], told: str) -> None:
    file = tmp_path / "validation-00000-of-00001.parquet"
    published(file, [row(1, answer="1", image_1=held(0)) | changed])
    (found,) = scan_mmmu(tmp_path)
    assert isinstance(found, DataError)
    assert (told in found.what, "row 0" in str(found.where)) == (True, True), found
