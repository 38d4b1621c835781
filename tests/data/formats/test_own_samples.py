"""Our own layout as JSON lines, and column maps: user questions are imported completely or reported."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.formats.published import jpeg, lines
from tests.schema import records
from vtune.data.formats.building import Options
from vtune.data.formats.samples import own_line, own_sample
from vtune.data.formats.source import Place
from vtune.data.formats.table import FORMATS
from vtune.errors import DataError, RecipeError
from vtune.runs.data.importing import import_data
from vtune.schema.message import Picture
from vtune.schema.parquet import read_samples
from vtune.schema.sample import Evidence, Sample

PLACE = Place(Path("mine.jsonl"), 0, "mine")
PHOTOS = st.sampled_from([jpeg(0), jpeg(1)])


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    """Any sample with valid pictures."""
    sample = draw(records.samples())
    images = tuple(Picture(draw(PHOTOS), draw(st.none() | records.names)) for _ in sample.images)
    return replace(sample, images=images)


@settings(max_examples=120)
@given(samples())
def test_a_sample_survives_a_round_trip_through_json_lines(sample: Sample) -> None:
    line = json.dumps(own_line(sample, 0), ensure_ascii=False, allow_nan=False)
    assert own_sample(json.loads(line), PLACE, Options()) == sample


def row(**changes: Any) -> dict[str, Any]:
    """The minimum that a line must contain."""
    return {
        "data_source": "mine",
        "prompt": "How many cups?",
        "images": ["cups.jpg"],
        "reward_model": {"ground_truth": "3", "verifier": "counting"},
    } | changes


def one(folder: Path, line: dict[str, Any], **options: Any) -> Sample:
    (folder / "cups.jpg").write_bytes(jpeg(0))
    file = lines(folder / "mine.jsonl", [line])
    ((_, found),) = FORMATS["samples"].read(file, Options(**options))
    if isinstance(found, DataError):
        raise found
    assert isinstance(found, Sample)
    return found


def test_a_line_may_omit_what_has_a_default(tmp_path: Path) -> None:
    sample = one(tmp_path, row())
    assert sample.id == "mine/0"
    assert sample.prompt[0].content == "<image>\nHow many cups?"
    assert sample.images == (Picture(jpeg(0), "cups.jpg"),)
    assert (sample.accuracy_ratio, sample.format_ratio, sample.tools) == (1.0, 0.0, ())
    one_without = row(reward_model={"ground_truth": 3}, extra_info={"id": 7, "site": None})
    sample = one(tmp_path, one_without)
    assert (sample.id, sample.ground_truth, sample.verifier) == ("7", "3", "math")
    assert sample.extra == {"site": None}
    assert one(tmp_path, one_without, verifier="ocr").verifier == "ocr"


def test_boxes_may_be_the_ground_truth_as_json_values(tmp_path: Path) -> None:
    box = {"label": "cup", "bbox_2d": [1, 2, 30, 40]}
    sample = one(tmp_path, row(reward_model={"ground_truth": [box], "verifier": "grounding"}))
    assert json.loads(sample.ground_truth) == [box]


@pytest.mark.parametrize(
    ("change", "column", "fix"),
    [
        ({"evidnce": []}, "evidnce", "did you mean `evidence`?"),
        ({"reward_model": {"ground_truth": "3", "iou": 0.5}}, "reward_model.iou", "verifier_parm"),
        ({"evidence": [{"bbox": [1, 2, 3, 4]}]}, "evidence.bbox", "did you mean `bbox_2d`?"),
        ({"images": [{"bytes": "no base64!"}]}, "images.bytes", "encode"),
        ({"evidence": [{"label": "cup"}]}, "bbox_2d", "a box"),
        ({"tools": "python"}, "tools", "a list"),
    ],
)
def test_an_unknown_column_is_reported_and_never_ignored(
    tmp_path: Path, change: dict[str, Any], column: str, fix: str
) -> None:
    with pytest.raises(DataError) as caught:
        one(tmp_path, row(**change))
    assert column in str(caught.value)
    assert fix in caught.value.fix


@pytest.mark.parametrize(
    "added", [{"tools": ["python"]}, {"choices": ["3", "4"]}, {"evidence": [{"bbox_2d": [1, 2, 30, 40]}]}]
)
def test_the_vtriune_reader_refuses_columns_that_it_would_lose(tmp_path: Path, added: dict[str, Any]) -> None:
    (tmp_path / "cups.jpg").write_bytes(jpeg(0))
    out = tmp_path / "out" / "a.parquet"
    with pytest.raises(DataError, match="format `samples`, not of `vtriune`") as caught:
        import_data(
            "vtriune",
            [lines(tmp_path / "mine.jsonl", [row(**added)])],
            out,
            options=Options(),
            strict=False,
        )
    assert "vtune data import samples" in caught.value.fix
    later = lines(tmp_path / "later.jsonl", [row(), row(**added)])
    result = import_data("vtriune", [later], out, options=Options(), strict=False)
    (problem,) = result["problems"]
    assert (problem["row"], problem["fix"]) == (1, "import the file as `samples`")
    whole = import_data("samples", [later], out, options=Options(), strict=False)
    assert whole["kept"] == 2
    _, second = read_samples(out)
    assert second.tools or second.choices or second.evidence


def mapped(folder: Path, rows: list[dict[str, Any]], columns: str) -> list[Sample | DataError]:
    (folder / "cups.jpg").write_bytes(jpeg(0))
    given = folder / "columns.yaml"
    given.write_text(f"source: mine\nquestion: q\nanswer: a\nimages: pic\n{columns}")
    file = lines(
        folder / "mine.jsonl", [{"pic": "cups.jpg", "q": "How many?", "a": "3"} | row for row in rows]
    )
    return [found for _, found in FORMATS["hf"].read(file, Options(columns=given))]  # type: ignore[misc]


def test_a_column_map_names_columns_or_gives_a_constant(tmp_path: Path) -> None:
    rows = [{"kind": "counting", "judge": "counting"}, {"kind": "ocr", "judge": None}]
    columns = "ability: {column: kind}\nverifier: {column: judge}\ntools: [python]\n"
    first, second = mapped(tmp_path, rows, columns)
    assert isinstance(first, Sample)
    assert isinstance(second, Sample)
    assert [(s.ability, s.verifier, s.tools) for s in (first, second)] == [
        ("counting", "counting", ("python",)),
        ("ocr", "math", ("python",)),
    ]
    assert not {"kind", "judge"} & set(first.extra), "columns that were read"


def test_a_constant_that_equals_a_column_name_is_refused_as_ambiguous(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="writes the word into every row") as caught:
        mapped(tmp_path, [{"kind": "counting"}], "ability: kind\n")
    assert "{column: kind}" in caught.value.fix
    (sample,) = mapped(tmp_path, [{"kind": "counting"}], "ability: {value: kind}\n")
    assert isinstance(sample, Sample)
    assert sample.ability == "kind"
    with pytest.raises(DataError, match="no column `kin`"):
        mapped(tmp_path, [{"kind": "counting"}], "ability: {column: kin}\n")


@pytest.mark.parametrize(
    ("value", "spec", "boxes"),
    [
        ([10, 20, 30, 40], "boxes", [("", (10, 20, 30, 40))]),
        ([[10, 20, 30, 40], [1, 2, 3, 4]], "boxes", [("", (10, 20, 30, 40)), ("", (1, 2, 3, 4))]),
        ("[10, 20, 30, 40]", "boxes", [("", (10, 20, 30, 40))]),
        ([{"label": "cup", "bbox_2d": [10, 20, 30, 40]}], "boxes", [("cup", (10, 20, 30, 40))]),
        ([10, 20, 30, 40], "{column: boxes, corners: xywh}", [("", (10, 20, 40, 60))]),
        ([0, 500, 250, 1000], "{column: boxes, space: relative_1000}", [("", (0, 30, 20, 60))]),
        ([0, 0.5, 0.25, 1], "{column: boxes, space: relative_1}", [("", (0, 30, 20, 60))]),
        ("", "boxes", []),
        (None, "boxes", []),
    ],
)
def test_evidence_is_read_in_the_forms_used_in_tables(
    tmp_path: Path, value: Any, spec: str, boxes: list[tuple[str, tuple[float, ...]]]
) -> None:
    (sample,) = mapped(tmp_path, [{"boxes": value}], f"evidence: {spec}\n")
    assert isinstance(sample, Sample)
    assert sample.evidence == tuple(Evidence(label, 0, box) for label, box in boxes)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["around here", [1, 2, 3], [{"bbox": [1, 2, 3, 4]}], 7])
def test_evidence_that_is_not_a_box_is_reported_with_its_column(tmp_path: Path, value: Any) -> None:
    (found,) = mapped(tmp_path, [{"boxes": value}], "evidence: boxes\n")
    assert isinstance(found, DataError)
    assert "boxes" in found.where
    assert found.fix


def test_verifier_options_are_constant_or_come_from_a_column(tmp_path: Path) -> None:
    (sample,) = mapped(tmp_path, [{}], "verifier: ocr\nverifier_parm: {case_sensitive: true}\n")
    assert isinstance(sample, Sample)
    assert sample.verifier_parm == {"case_sensitive": True}
    rows = [{"more": '{"case_sensitive": true}'}, {"more": None}]
    first, second = mapped(tmp_path, rows, "verifier: ocr\nverifier_parm: {column: more}\n")
    assert isinstance(first, Sample)
    assert isinstance(second, Sample)
    assert (first.verifier_parm, second.verifier_parm) == ({"case_sensitive": True}, {})


def test_a_table_of_questions_and_boxes_is_imported_even_if_an_answer_is_none(tmp_path: Path) -> None:
    (tmp_path / "cups.jpg").write_bytes(jpeg(0))
    table = tmp_path / "mine.csv"
    table.write_text(
        'pic,q,a,kind,boxes\ncups.jpg,Which?,None,attribute,"[10, 20, 30, 40]"\ncups.jpg,Many?,3,,\n'
    )
    columns = tmp_path / "columns.yaml"
    columns.write_text(
        "source: mine\nquestion: q\nanswer: a\nimages: pic\nability: {column: kind}\nevidence: boxes\n"
    )
    first, second = (found for _, found in FORMATS["hf"].read(table, Options(columns=columns)))
    assert isinstance(first, Sample)
    assert isinstance(second, Sample)
    assert (first.ground_truth, first.ability, first.evidence[0].bbox) == (
        "None",
        "attribute",
        (10, 20, 30, 40),
    )
    assert (second.ground_truth, second.ability, second.evidence) == ("3", "", ())


def test_boxes_in_a_column_may_be_the_answer(tmp_path: Path) -> None:
    (sample,) = mapped(tmp_path, [{"a": "[1, 2, 30, 40]"}], "verifier: grounding\n")
    assert isinstance(sample, Sample)
    assert json.loads(sample.ground_truth) == [{"label": "", "bbox_2d": [1, 2, 30, 40]}]
