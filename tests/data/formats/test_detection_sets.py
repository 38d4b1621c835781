"""Pictures that are scored as a set: nothing is dropped, and samples hold all that scorers need."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.data.formats.published import SIZE, coco_set, jpeg, ovdeval
from vtune.data.formats.building import Options
from vtune.data.formats.table import FORMATS
from vtune.errors import DataError
from vtune.rollout.prompts import STYLES
from vtune.runs.data.importing import import_data
from vtune.schema.annotated import AnnotatedPicture, from_extra
from vtune.schema.parquet import read_samples
from vtune.schema.sample import Sample
from vtune.verifiers import check_ground_truth
from vtune.verifiers.detection import verify_detection, with_iou


def samples(name: str, path: Path, images: Path | None = None) -> dict[str, Sample]:
    found = [entry for _, entry in FORMATS[name].read(path, Options(images=images))]
    return {entry.id: entry for entry in found if isinstance(entry, Sample)}


def annotated(sample: Sample) -> AnnotatedPicture:
    return from_extra(sample.extra, where=sample.id)


def test_a_photograph_asks_for_what_it_shows_and_keeps_crowds(tmp_path: Path) -> None:
    found = samples("coco_set", coco_set(tmp_path).paths[0])
    assert list(found) == ["coco/1", "coco/2"]
    second = found["coco/2"]
    assert second.prompt[0].content.endswith("categories within the image:\n- dog\n- cup")
    picture = annotated(second)
    assert (picture.identity, picture.width, picture.height) == (2, 100, 200)
    assert picture.labels == {"dog": 1, "cup": 2}
    assert [(one.category, one.crowd, one.sides) for one in picture.annotations] == [
        (2, False, (10, 10, 30, 30)),
        (1, True, (0, 0, 90, 90)),
    ]
    # The verifier of a single reply leaves crowds out.
    assert json.loads(second.ground_truth) == [{"label": "cup", "bbox_2d": [10, 10, 40, 40]}]
    # A box that extends beyond its picture is clipped for the verifier, but unchanged for the set.
    assert json.loads(found["coco/1"].ground_truth)[2]["bbox_2d"] == [150, 50, 200, 100]
    assert annotated(found["coco/1"]).annotations[2].sides == (150, 50, 52, 51)


def test_ovdeval_asks_for_present_and_absent_objects_in_neutral_order(
    tmp_path: Path,
) -> None:
    found = samples("ovdeval", ovdeval(tmp_path).paths[0])
    assert list(found) == ["ovdeval_color/0", "ovdeval_color/2", "ovdeval_logo/0"]
    first = found["ovdeval_color/0"]
    assert first.prompt[0].content.endswith(":\n- blue cup\n- red cup")
    assert annotated(first).labels == {"blue cup": 1, "red cup": 0}
    assert annotated(first).annotations[0].area == 1200
    # Its own script asks for all categories of a subset of names.
    assert found["ovdeval_logo/0"].prompt[0].content.endswith(":\n- blue cup\n- green cup\n- red cup")
    assert {annotated(one).subset for one in found.values()} == {"color", "logo"}


def test_an_empty_list_is_right_for_an_empty_picture(tmp_path: Path) -> None:
    empty = with_iou(samples("ovdeval", ovdeval(tmp_path).paths[0])["ovdeval_color/2"], [0.5])
    check_ground_truth(empty)
    said = {"[]": 1.0, '[{"bbox_2d": [1, 1, 9, 9], "label": "green cup"}]': 0.0, "none": 0.0}
    found = {text: verify_detection(f"<answer>{text}</answer>", empty) for text in said}
    assert {text: verdict.score for text, verdict in found.items()} == said
    assert [verdict.parts["unreadable"] for verdict in found.values()] == [0.0, 0.0, 1.0]


def test_data_for_scorers_survives_an_import(tmp_path: Path) -> None:
    folder = tmp_path / "ovdeval"
    before = samples("ovdeval", ovdeval(folder).paths[0])
    out = tmp_path / "samples.parquet"
    import_data("ovdeval", [folder], out, options=Options(), strict=False)
    after = {one.id: one for one in read_samples(out)}
    assert before.keys() == after.keys()
    assert [annotated(one) for one in before.values()] == [annotated(one) for one in after.values()]


def test_the_prompt_says_how_boxes_are_written(tmp_path: Path) -> None:
    sample = samples("ovdeval", ovdeval(tmp_path).paths[0])["ovdeval_color/0"]
    assert "pool" in STYLES
    from vtune.verifiers.answer_instruction import self_contained

    width, height = SIZE
    assert f"in pixels of the image, which is {width} wide and {height} high" in (
        self_contained(sample).prompt[0].content
    )


BROKEN: dict[str, dict[str, Any]] = {
    "a box of no category": {"category_id": 7},
    "a box of no picture": {"image_id": 7},
    "a box of three numbers": {"bbox": [1, 2, 3]},
    "a box inside out": {"bbox": [1, 2, -3, 4]},
    "a box that is not finite": {"bbox": [1, 2, float("nan"), 4]},
}


@pytest.mark.parametrize("change", BROKEN.values(), ids=BROKEN)
def test_a_file_with_a_broken_annotation_is_refused_with_the_place(
    change: dict[str, Any], tmp_path: Path
) -> None:
    file = coco_set(tmp_path).paths[0]
    content = json.loads(file.read_text())
    content["annotations"][1] |= change
    file.write_text(json.dumps(content))
    with pytest.raises(DataError, match=r"`annotations`\[1\]"):
        samples("coco_set", file)


def test_two_boxes_with_one_id_are_refused(tmp_path: Path) -> None:
    file = coco_set(tmp_path).paths[0]
    content = json.loads(file.read_text())
    content["annotations"][1]["id"] = content["annotations"][0]["id"]
    file.write_text(json.dumps(content))
    with pytest.raises(DataError, match="twice"):
        samples("coco_set", file)


def test_photographs_may_be_beside_the_file(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.jpg").write_bytes(jpeg(0))
    width, height = SIZE
    content = {
        "images": [{"id": 1, "file_name": "a.jpg", "width": width, "height": height}],
        "categories": [{"id": 1, "name": "cup"}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 1, 9, 9], "iscrowd": 1}],
    }
    (tmp_path / "instances.json").write_text(json.dumps(content))
    found = samples("coco_set", tmp_path / "instances.json")["coco/1"]
    # If there are only crowds, the verifier asks for them.
    assert json.loads(found.ground_truth) == [{"label": "cup", "bbox_2d": [1, 1, 10, 10]}]
