"""ScreenSpot-Pro, RefCOCO and VisualProbe as published."""

import json
from pathlib import Path

import pytest

from tests.data.formats.published import written
from vtune.data.formats.building import Options
from vtune.data.formats.table import FORMATS
from vtune.errors import DataError
from vtune.schema.sample import Sample
from vtune.verifiers import VERIFIERS


def found(name: str, path: Path) -> list[Sample | DataError]:
    return [entry for _, entry in FORMATS[name].read(path, Options())]  # type: ignore[misc]


def samples(name: str, path: Path) -> list[Sample]:
    return [entry for entry in found(name, path) if isinstance(entry, Sample)]


def score(sample: Sample, answer: str) -> float:
    return VERIFIERS[sample.verifier].verify(f"<answer>{answer}</answer>", sample).score


def test_screenspot_pro_asks_for_a_point_and_keeps_its_categories(tmp_path: Path) -> None:
    root = written("screenspot_pro", tmp_path)
    text, icon = samples("screenspot_pro", root)
    assert (text.id, text.source) == ("screenspot_pro/word_windows_0", "screenspot_pro")
    assert [one.extra["l2-category"] for one in (text, icon)] == ["text", "icon"]
    assert (text.extra["category"], text.extra["instruction"]) == ("Office", "save the file")
    assert text.evidence[0].bbox == (20, 20, 70, 60)
    assert [score(text, point) for point in ("(20, 60)", "(19, 60)", "nowhere")] == [1.0, 0.0, 0.0]
    assert samples("screenspot_pro", root / "annotations" / "word_windows.json") == [text, icon]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"img_size": [1920, 1080]}, "the picture is 200x120 and the file says"),
        ({"bbox": [20, 20, 20, 60]}, "is not \\[x0, y0, x1, y1\\] inside"),
        ({"bbox": [20, 20, 70]}, "four finite numbers"),
        ({"instruction": " "}, "an instruction"),
        ({"img_filename": "win/none.jpg"}, "none.jpg"),
        ({"img_filename": "../../secret.jpg"}, "leaves the folder"),
        ({"group": None}, "no value for group"),
    ],
)
def test_a_screenspot_pro_row_that_cannot_be_scored_is_an_error(
    change: dict[str, object], told: str, tmp_path: Path
) -> None:
    root = written("screenspot_pro", tmp_path)
    file = root / "annotations" / "word_windows.json"
    rows = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps([rows[0] | change, rows[1]]), encoding="utf-8")
    broken, good = found("screenspot_pro", root)
    assert isinstance(good, Sample)
    assert isinstance(broken, DataError)
    with pytest.raises(DataError, match=told):
        raise broken


def test_minus_one_means_the_border(tmp_path: Path) -> None:
    root = written("screenspot_pro", tmp_path)
    file = root / "annotations" / "word_windows.json"
    rows = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps([rows[0] | {"bbox": [-1, -1, 9, 9]}]), encoding="utf-8")
    (sample,) = samples("screenspot_pro", root)
    assert sample.evidence[0].bbox == (0, 0, 9, 9)


def test_a_folder_without_annotations_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no folder"):
        found("screenspot_pro", tmp_path)


def test_each_expression_of_refcoco_is_a_question_about_its_box(tmp_path: Path) -> None:
    one, other = samples("refcoco", written("refcoco", tmp_path))
    assert (one.id, other.id) == ("RefCOCO_testA/1/0", "RefCOCO_testA/1/1")
    assert other.question == "Where in the image is this: sign on the left"
    assert {one.source, other.source} == {"RefCOCO_testA"}
    # Right from IoU 0.5, by a single box.
    assert score(one, "[20, 20, 70, 60]") == score(one, "[20, 20, 45, 60]") == 1.0
    assert score(one, "[20, 20, 44, 60]") == score(one, "[20, 20, 70, 60], [20, 20, 70, 60]") == 0.0
    assert score(one, "[[20, 20, 70, 60], [0, 0, 9, 9]]") == 0.0


def test_refcoco_needs_its_published_names(tmp_path: Path) -> None:
    root = written("refcoco", tmp_path)
    with pytest.raises(DataError, match="keep the published names"):
        found("refcoco", root.rename(tmp_path / "mine"))
    (tmp_path / "mine" / "data" / "testA-00000-of-00001.parquet").rename(
        tmp_path / "mine" / "data" / "testA-00000-of-00002.parquet"
    )
    whole = (tmp_path / "mine").rename(tmp_path / "RefCOCOplus")
    with pytest.raises(DataError, match="testA-00001-of-00002 is missing"):
        found("refcoco", whole)


def test_relative_coordinates_in_the_tsv_become_pixels(tmp_path: Path) -> None:
    val, test = samples("refcoco_tsv", written("refcoco_tsv", tmp_path))
    assert (val.source, test.source) == ("RefCOCO_val", "RefCOCOg_test")
    assert json.loads(val.ground_truth) == [{"label": "", "bbox_2d": [20, 20, 70, 60]}]


def test_visualprobe_is_judged_by_a_model_and_has_its_level(tmp_path: Path) -> None:
    file = written("visual_probe", tmp_path)
    (sample,) = samples("visual_probe", file)
    assert (sample.verifier, sample.ground_truth, sample.extra["category"]) == ("judge", "white", "hard")
    assert samples("visual_probe", file.parent) == [sample]
    moved = file.parent.rename(tmp_path / "other")
    (error,) = found("visual_probe", moved / "val.json")
    assert isinstance(error, DataError)
    assert "keep the published names" in str(error.fix)
