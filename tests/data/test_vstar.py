import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.data.benchmarks import make_vstar, picture, raising, write_tsv
from vtune.data.vstar import scan_vstar
from vtune.errors import DataError
from vtune.schema.sample import Sample
from vtune.verifiers import check_ground_truth

SIZE = (120, 90)
BOX = (30, 20, 16, 12)


def read_vstar(path: Path) -> Iterator[Sample]:
    return raising(entry for _, entry in scan_vstar(path))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_vstar(tmp_path / "vstar_bench", 4, SIZE, BOX)


def note(folder: Path, **changes: Any) -> None:
    """Change the annotation of the first question."""
    file = folder / "direct_attributes/sa_0000.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_a_folder_is_read_with_boxes_as_corners(folder: Path) -> None:
    # Not part of the benchmark's 191 questions.
    (folder / "OCR").mkdir()
    (folder / "OCR/sa_9.json").write_text("{}")
    samples = list(read_vstar(folder))
    assert [sample.id for sample in samples] == [
        "vstar/direct_attributes/sa_0000",
        "vstar/direct_attributes/sa_0002",
        "vstar/relative_position/sa_0001",
        "vstar/relative_position/sa_0003",
    ]
    first = samples[0]
    assert first.evidence[0].bbox == (30, 20, 46, 32)
    assert first.evidence[0].label == "sign"
    assert first.choices == ("red", "green", "blue", "yellow")
    assert first.images[0].data == (folder / "direct_attributes/sa_0000.jpg").read_bytes()
    assert first.prompt[0].content == (
        "<image>\nWhat is the colour of the sign?\nA. red\nB. green\nC. blue\nD. yellow"
    )
    assert (first.source, first.ability, first.verifier) == ("vstar", "visual_search", "choice")
    # test_questions.jsonl rotates it by the number of the question; the annotations have it first.
    assert [sample.ground_truth for sample in samples] == ["A", "D", "A", "B"]
    assert [sample.answer for sample in samples] == ["red", "blue", "green", "yellow"]
    assert samples[1].choices == ("red", "green", "yellow", "blue")
    assert [sample.extra["category"] for sample in samples] == ["direct_attributes"] * 2 + [
        "relative_position"
    ] * 2
    assert len(samples[2].choices) == 2
    for sample in samples:
        check_ground_truth(sample)


def test_without_the_official_order_the_right_option_comes_first(folder: Path) -> None:
    (folder / "test_questions.jsonl").unlink()
    assert {sample.ground_truth for sample in read_vstar(folder)} == {"A"}


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        pytest.param(
            '"label": "D"', '"label": "A"', "differ in their options, or in the right one", id="label"
        ),
        pytest.param("(A) red", "(A) rot", "differ in their options", id="an option"),
        pytest.param("sa_0002", "sa_0009", "differ in their options", id="a picture"),
        pytest.param('"label"', '"letter"', "row 0", id="a column"),
        pytest.param("{", "", "row 0", id="no JSON"),
    ],
)
def test_an_official_order_for_other_questions_is_an_error(
    old: str, new: str, what: str, folder: Path
) -> None:
    file = folder / "test_questions.jsonl"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    with pytest.raises(DataError, match=what) as raised:
        list(read_vstar(folder))
    assert "download" in raised.value.fix


def test_a_box_that_exceeds_the_picture_by_a_pixel_is_clipped(folder: Path) -> None:
    note(folder, bbox=[[110, 80, 11, 11]])
    assert next(read_vstar(folder)).evidence[0].bbox == (110, 80, 120, 90)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        pytest.param({"bbox": [[130, 20, 16, 12]]}, "inside 120x90", id="box outside"),
        pytest.param({"bbox": [[30, 20, 0, 12]]}, "inside 120x90", id="empty box"),
        pytest.param({"bbox": [[30, 20, 16]]}, "inside 120x90", id="three numbers"),
        pytest.param({"bbox": [[30, 20, 16, "12"]]}, "inside 120x90", id="a text"),
        pytest.param({"bbox": [30, 20, 16, 12]}, "`bbox` is not a list", id="a bare box"),
        pytest.param({"bbox": []}, "0 box(es) for 1 target(s)", id="no box"),
        pytest.param({"target_object": ["sign", "cup"]}, "1 box(es) for 2", id="a box too few"),
        pytest.param({"options": ["red"]}, "fewer than two options", id="one option"),
        pytest.param({"question": None}, "no question", id="no question"),
    ],
)
def test_an_annotation_unlike_the_published_ones_is_reported(
    folder: Path, changes: dict[str, Any], what: str
) -> None:
    note(folder, **changes)
    with pytest.raises(DataError) as error:
        list(read_vstar(folder))
    assert what in error.value.what
    assert "sa_0000.json" in error.value.where
    assert error.value.fix


def test_an_incomplete_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "relative_position/sa_0001.json").unlink()
    with pytest.raises(DataError, match="sa_0001 is not a picture with its own JSON"):
        list(read_vstar(folder))
    with pytest.raises(DataError, match="there is no folder"):
        list(read_vstar(tmp_path))


def test_a_table_keeps_its_letters_and_has_no_boxes(tmp_path: Path) -> None:
    row = {
        "index": "7",
        "image": base64.b64encode(picture(0, SIZE, BOX)).decode(),
        "question": "Is it red?\nAnswer with the option's letter from the given choices directly.",
        "A": "no",
        "B": "yes",
        "C": "",
        "answer": "B",
        "category": "relative_position",
    }
    (sample,) = read_vstar(write_tsv(tmp_path / "VStarBench.tsv", [row]))
    assert (sample.id, sample.ground_truth, sample.answer) == ("vstar/7", "B", "yes")
    assert sample.choices == ("no", "yes")
    assert sample.evidence == ()
    assert sample.question == "Is it red?\nA. no\nB. yes"
    with pytest.raises(DataError, match="unknown category 'OCR'"):
        list(read_vstar(write_tsv(tmp_path / "other.tsv", [row | {"category": "OCR"}])))
