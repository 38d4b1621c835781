"""Every published layout survives import, validation, export and another import without loss."""

from pathlib import Path

import pytest

from tests.data.formats.published import MAKERS, Published
from vtune.data.formats.building import Options
from vtune.data.formats.table import FORMATS, written
from vtune.errors import DataError, RecipeError
from vtune.runs.data.exporting import export_data
from vtune.runs.data.importing import import_data
from vtune.runs.data.validating import validate
from vtune.schema.parquet import read_samples, read_trajectories

EVERY = pytest.mark.parametrize("name", MAKERS)
SAMPLES = [name for name in MAKERS if FORMATS[name].makes == "samples"]


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Published, Path, dict]]:
    found = {}
    for name, make in MAKERS.items():
        folder = tmp_path_factory.mktemp(name)
        published = make(folder)
        out = tmp_path_factory.mktemp("out") / f"{name}.parquet"
        result = import_data(name, published.paths, out, options=published.options, strict=False)
        found[name] = (published, out, result)
    return found


def records(path: Path, name: str) -> list:
    return list(read_samples(path) if name in SAMPLES else read_trajectories(path))


def test_every_format_has_a_published_file() -> None:
    assert set(MAKERS) == set(FORMATS)


@EVERY
def test_good_rows_are_kept_and_invalid_ones_reported_with_a_fix(name: str, imported: dict) -> None:
    published, out, result = imported[name]
    assert {f"{p['file']}, row {p['row']}" for p in result["problems"]} == set(published.odd)
    for problem in result["problems"]:
        assert published.odd[f"{problem['file']}, row {problem['row']}"] in problem["what"] + problem["fix"]
        assert problem["fix"]
    assert result["by_verifier"] == published.verifiers
    assert result["kept"] == len(records(out, name)) > 0
    assert set(published.sources) <= set(result["by_source"])


@EVERY
def test_every_kept_row_is_valid(name: str, imported: dict) -> None:
    _, out, result = imported[name]
    checked = validate([out])
    assert checked["problems"] == []
    assert checked["rows"] == result["kept"]


@EVERY
def test_strict_stops_at_the_first_invalid_row_and_leaves_no_file(name: str, tmp_path: Path) -> None:
    published = MAKERS[name](tmp_path / name if (tmp_path / name).mkdir() is None else tmp_path)
    out = tmp_path / "out.parquet"
    with pytest.raises(DataError) as caught:
        import_data(name, published.paths, out, options=published.options, strict=True)
    assert any(caught.value.where.startswith(place.removesuffix(", row None")) for place in published.odd)
    assert [file.name for file in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("layout", [name for name in written() if FORMATS[name].makes == "samples"])
def test_samples_survive_a_round_trip_through_other_layouts(
    name: str, layout: str, imported: dict, tmp_path: Path
) -> None:
    _, out, result = imported[name]
    writer = FORMATS[layout].writes
    assert writer is not None
    there = tmp_path / ("there.jsonl" if writer.columns is None else "there.parquet")
    back = tmp_path / "back.parquet"
    foreign = next((one for one in ("judge", "point_in_box") if one in result["by_verifier"]), None)
    if layout == "vtriune" and foreign is not None:
        with pytest.raises(DataError, match=f"no verifier like `{foreign}`"):
            export_data(layout, out, there, strict=True)
        assert not there.exists()
        return
    exported = export_data(layout, out, there)
    assert (exported["rows"], exported["problems"]) == (result["kept"], [])
    again = import_data(layout, [there], back, options=Options(), strict=True)
    assert again["by_verifier"] == result["by_verifier"]
    assert records(back, name) == records(out, name)


@pytest.mark.parametrize(("made", "layout"), [
    ("thyme", "thyme"), ("thyme", "conversations"), ("conversations", "conversations"),
])  # fmt: skip
def test_traces_survive_a_round_trip(imported: dict, tmp_path: Path, made: str, layout: str) -> None:
    _, out, result = imported[made]
    there, back = tmp_path / "there.parquet", tmp_path / "back.parquet"
    export_data(layout, out, there)
    again = import_data(layout, [there], back, options=Options(), strict=True)
    assert again["kept"] == result["kept"]
    first, second = records(out, made), records(back, layout)
    # Base64 has no path; nothing else may differ.
    assert [t.messages for t in first] == [t.messages for t in second]
    assert [t.calls for t in first] == [t.calls for t in second]
    assert [[p.data for p in t.images] for t in first] == [[p.data for p in t.images] for t in second]
    assert [(t.sample_id, t.source, t.answer) for t in first] == [
        (t.sample_id, t.source, t.answer) for t in second
    ]


@pytest.mark.parametrize(
    ("layout", "name", "written"),
    [
        ("conversations", "a.jsonl", "Parquet"),
        ("verl", "a.json", "Parquet"),
        ("samples", "a.parquet", "JSON"),
    ],
)
def test_a_file_of_another_kind_is_named_as_such(
    layout: str, name: str, written: str, tmp_path: Path
) -> None:
    with pytest.raises(RecipeError, match=f"`{layout}` writes {written}"):
        export_data(layout, tmp_path / "rows.parquet", tmp_path / name)


def test_tasks_from_annotated_photographs_survive_a_round_trip(coco_mini: Path, tmp_path: Path) -> None:
    out, there, back = (tmp_path / f"{name}.parquet" for name in ("out", "there", "back"))
    options = Options(images=coco_mini / "images")
    result = import_data("coco", [coco_mini / "instances.json"], out, options=options, strict=True)
    assert set(result["by_source"]) == {"coco_detection", "coco_grounding", "coco_counting"}
    assert result["kept"] > 100
    export_data("vtriune", out, there)
    import_data("vtriune", [there], back, options=Options(), strict=True)
    assert records(back, "coco") == records(out, "coco")
