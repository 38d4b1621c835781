import json
import re
import struct
import zlib
from collections import Counter
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from vtune.data.coco import coco_samples
from vtune.data.coco_scenes import TWICE
from vtune.data.formats.building import Options
from vtune.data.formats.coco import read_coco
from vtune.errors import DataError
from vtune.rollout.transcript import check_trace
from vtune.runs.data.coco import make_coco
from vtune.runs.data.own_traces import make_box_traces
from vtune.schema.parquet import read_samples, read_trajectories, write_samples
from vtune.schema.sample import Sample

NAMES = ["cat", "dog", "cup", "car", "bus"]


def annotation(
    identity: int, image: int, category: int, box: list[float], iscrowd: int = 0
) -> dict[str, Any]:
    return {"id": identity, "image_id": image, "category_id": category, "bbox": box, "iscrowd": iscrowd}


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """Two pictures: two cats and a dog; a cup beside a crowd of cars and a tiny bus."""
    for name, size in (("a.jpg", (200, 100)), ("b.jpg", (100, 200))):
        Image.new("RGB", size, (90, 90, 90)).save(tmp_path / name)
    content = {
        "images": [
            {"id": 1, "file_name": "a.jpg", "width": 200, "height": 100},
            {"id": 2, "file_name": "b.jpg", "width": 100, "height": 200},
        ],
        "categories": [{"id": n, "name": name} for n, name in enumerate(NAMES)],
        "annotations": [
            annotation(10, 1, 0, [0, 0, 50.5, 40]),
            annotation(11, 1, 0, [100, 0, 50, 40]),
            annotation(12, 1, 1, [150, 50, 52, 51]),
            annotation(13, 2, 2, [10, 10, 30, 30]),
            annotation(14, 2, 3, [0, 0, 90, 90], iscrowd=1),
            annotation(15, 2, 4, [0, 0, 15, 90]),
        ],
    }
    (tmp_path / "instances.json").write_text(json.dumps(content))
    return tmp_path


def rewrite(folder: Path, **changes: Any) -> None:
    path = folder / "instances.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_crowds_and_tiny_boxes_give_no_questions(tiny: Path) -> None:
    ids = {s.id for s in coco_samples(tiny / "instances.json", tiny, limit=None, seed=0)}
    regions = {f"coco_region/{n}" for n in (10, 11, 12, 13)}
    assert ids == regions | {"coco_count/1/cat", "coco_count/1/dog", "coco_count/2/cup"}


def test_the_wrong_options_are_not_in_the_picture(tiny: Path) -> None:
    rows = {s.id: s for s in coco_samples(tiny / "instances.json", tiny, limit=None, seed=0)}
    region = rows["coco_region/10"]
    assert set(region.choices) == {"cat", "cup", "car", "bus"}
    assert region.choices["ABCD".index(region.ground_truth)] == region.answer == "cat"
    assert region.question.startswith("Which object is in the region [0, 0, 50, 40]")
    assert region.evidence[0].bbox == (0.0, 0.0, 50.5, 40.0)


def test_a_count_has_every_instance_as_evidence(tiny: Path) -> None:
    rows = {s.id: s for s in coco_samples(tiny / "instances.json", tiny, limit=None, seed=0)}
    count = rows["coco_count/1/cat"]
    assert (count.ground_truth, len(count.evidence), count.verifier) == ("2", 2, "exact")


def test_boxes_are_clipped_to_the_picture(tiny: Path) -> None:
    rows = {s.id: s for s in coco_samples(tiny / "instances.json", tiny, limit=None, seed=0)}
    assert rows["coco_region/12"].evidence[0].bbox == (150.0, 50.0, 200.0, 100.0)


def test_the_seed_determines_the_samples(tiny: Path) -> None:
    def ids(seed: int) -> list[str]:
        return [s.id for s in coco_samples(tiny / "instances.json", tiny, limit=None, seed=seed)]

    assert ids(3) == ids(3)
    assert len({tuple(ids(seed)) for seed in range(8)}) > 1


def test_the_kinds_alternate_up_to_the_limit(tiny: Path) -> None:
    rows = list(coco_samples(tiny / "instances.json", tiny, limit=4, seed=0))
    assert [s.source for s in rows] == ["coco_region", "coco_count"] * 2


def test_the_original_file_bytes_are_stored(tiny: Path) -> None:
    write_samples(tiny / "s.parquet", coco_samples(tiny / "instances.json", tiny, limit=None, seed=0))
    for sample in read_samples(tiny / "s.parquet"):
        assert sample.images[0].data == (tiny / sample.extra["image_path"]).read_bytes()


def test_broken_input_is_our_error(tiny: Path) -> None:
    def make() -> None:
        list(coco_samples(tiny / "instances.json", tiny, limit=None, seed=0))

    with pytest.raises(DataError, match="cannot read"):
        list(coco_samples(tiny / "none.json", tiny, limit=None, seed=0))
    (tiny / "a.jpg").write_bytes(b"no picture")
    with pytest.raises(DataError, match="not a usable image"):
        make()
    Image.new("RGB", (100, 200)).save(tiny / "a.jpg")
    with pytest.raises(DataError, match="the picture is 100x200 but the JSON says 200x100"):
        make()
    (tiny / "a.jpg").unlink()
    with pytest.raises(DataError, match=r"cannot read .*a\.jpg"):
        make()
    rewrite(tiny, categories=[])
    with pytest.raises(DataError, match=r"`annotations`\[0\]"):
        make()
    rewrite(tiny, categories=[{"id": 0}])
    with pytest.raises(DataError, match="not the layout of COCO"):
        make()
    (tiny / "instances.json").write_text("{")
    with pytest.raises(DataError, match="not JSON"):
        make()


PHOTO = {"id": 1, "file_name": "a.jpg", "width": 200, "height": 100}
OTHER = {"id": 2, "file_name": "b.jpg", "width": 100, "height": 200}


def read(folder: Path) -> tuple[list[str], set[str]]:
    """(errors, photographs with questions) of an import."""
    found = [entry for _, entry in read_coco(folder / "instances.json", Options(images=folder))]
    asked = {entry.extra["image_path"] for entry in found if isinstance(entry, Sample)}
    return [str(entry) for entry in found if isinstance(entry, DataError)], asked


@pytest.mark.parametrize(
    ("entry", "why", "asked"),
    [
        pytest.param(PHOTO | {"width": "wide"}, "invalid literal", {"b.jpg"}, id="a wrong width"),
        pytest.param(PHOTO | {"width": float("inf")}, "infinity", {"b.jpg"}, id="an endless width"),
        pytest.param(PHOTO | {"id": None}, "an id is None", {"b.jpg"}, id="no id"),
        pytest.param(PHOTO | {"id": 2}, "id 2 is also that of 'b.jpg'", set(), id="two of one id"),
    ],
)
def test_an_unreadable_photograph_is_reported_and_the_others_are_kept(
    entry: dict[str, Any], why: str, asked: set[str], tiny: Path
) -> None:
    rewrite(tiny, images=[OTHER, entry])
    with pytest.raises(DataError, match=why):
        list(coco_samples(tiny / "instances.json", tiny, limit=None, seed=0))
    errors, kept = read(tiny)
    assert kept == asked
    assert why in errors[0]
    assert "`images`[1]" in errors[0]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        pytest.param({"bbox": [0, 0, float("nan"), 40]}, "bbox is", id="NaN"),
        pytest.param({"bbox": [0, 0, float("inf"), 40]}, "bbox is", id="infinity"),
        pytest.param({"bbox": [50, 0, -40, 40]}, "bbox is", id="a negative width"),
        pytest.param({"bbox": [150, 0, 60, 50]}, "leaves the picture", id="a sixth outside"),
        pytest.param({"bbox": [-20, -10, 60, 80]}, "leaves the picture", id="outside before its corner"),
        pytest.param({"image_id": 77}, "its image_id 77 is that of no image", id="no such image"),
        pytest.param({"category_id": "x"}, "its category_id 'x' is that of no category", id="no category"),
        pytest.param({"id": None}, "an id is None", id="no id"),
    ],
)
def test_an_unreadable_annotation_is_reported_and_the_others_are_kept(
    change: dict[str, Any], why: str, tiny: Path
) -> None:
    good = annotation(13, 2, 2, [10, 10, 30, 30])
    rewrite(tiny, annotations=[annotation(10, 1, 0, [0, 0, 50, 40]) | change, good])
    with pytest.raises(DataError, match=why):
        list(coco_samples(tiny / "instances.json", tiny, limit=None, seed=0))
    (error,), kept = read(tiny)
    assert kept == {"b.jpg"}
    assert why in error
    assert "`annotations`[0]" in error


def test_photograph_ids_may_be_numbers_or_texts(tiny: Path) -> None:
    rewrite(
        tiny,
        images=[PHOTO | {"id": 10}, OTHER | {"id": "b"}],
        annotations=[
            annotation(1, 10, 0, [0, 0, 50, 40]),
            annotation(2, 0, 1, [0, 0, 50, 40]) | {"image_id": "b"},
        ],
    )
    ids = {s.id for s in coco_samples(tiny / "instances.json", tiny, limit=None, seed=0)}
    assert ids == {"coco_region/1", "coco_region/2", "coco_count/10/cat", "coco_count/b/dog"}


def test_a_photograph_that_cannot_be_opened_is_our_error(tiny: Path) -> None:
    png = BytesIO()
    Image.new("RGB", (2, 2)).save(png, "PNG")
    header = b"IHDR" + struct.pack(">II", 60000, 60000) + png.getvalue()[24:29]
    huge = png.getvalue()[:12] + header + struct.pack(">I", zlib.crc32(header)) + png.getvalue()[33:]
    (tiny / "huge.png").write_bytes(huge)
    for name, why in (("huge.png", "not a usable image.*pixels, more than"), ("a\0.jpg", "cannot read")):
        rewrite(tiny, images=[PHOTO | {"file_name": name}, OTHER])
        with pytest.raises(DataError, match=why):
            list(coco_samples(tiny / "instances.json", tiny, limit=None, seed=0))
        (error,), kept = read(tiny)
        assert re.search(why, error)
        assert kept == {"b.jpg"}


def test_real_photographs_become_balanced_samples(coco_mini: Path) -> None:
    images = coco_mini / "images"
    rows = list(islice(coco_samples(coco_mini / "instances.json", images, limit=40, seed=0), 60))
    assert len(rows) == 40
    regions = Counter(s.answer for s in rows if s.source == "coco_region")
    counts = Counter(s.ground_truth for s in rows if s.source == "coco_count")
    assert max(regions.values()) == 1
    assert len(counts) >= 4
    for sample in rows:
        with Image.open(BytesIO(sample.images[0].data or b"")) as picture:
            width, height = picture.size
        for item in sample.evidence:
            assert 0 <= item.bbox[0] < item.bbox[2] <= width
            assert 0 <= item.bbox[1] < item.bbox[3] <= height


def test_crowds_tiny_boxes_and_duplicates_are_counted(tiny: Path, tmp_path: Path) -> None:
    content = json.loads((tiny / "instances.json").read_text())
    twice = annotation(16, 1, 1, [150, 50, 52, 51])
    empty = {"id": 3, "file_name": "a.jpg", "width": 200, "height": 100}
    rewrite(tiny, annotations=[*content["annotations"], twice], images=[*content["images"], empty])
    made = make_coco(tiny / "instances.json", tiny, tmp_path / "out.parquet", limit=None, seed=0)
    assert made["passed_over"] == {
        "crowds, fakes and reflections": 1,
        "boxes under 16 pixels a side": 1,
        TWICE: 1,
        "photographs without a box to ask about": 1,
        "counts that nobody can be sure of": 2,
    }


def test_traces_of_photographs_match_their_samples(tmp_path: Path) -> None:
    Image.effect_noise((400, 200), 50).convert("RGB").save(tmp_path / "a.png")
    boxes = [[40 * at, 10, 30, 30] for at in range(5)]  # five cats: more than a trace has looks
    places = [(0, box) for box in boxes] + [(1, [10, 100, 40, 30]), (1, [300, 100, 40, 30])]
    content = {
        "images": [{"id": 1, "file_name": "a.png", "width": 400, "height": 200}],
        "categories": [{"id": n, "name": name} for n, name in enumerate(NAMES)],
        "annotations": [annotation(at, 1, *place) for at, place in enumerate(places)],
    }
    (tmp_path / "instances.json").write_text(json.dumps(content))
    out, traces, again = (tmp_path / f"{name}.parquet" for name in ("out", "traces", "again"))
    made = make_coco(tmp_path / "instances.json", tmp_path, out, limit=None, seed=0, traces=traces)
    assert made["by_source"] == {"coco_region": 7, "coco_count": 2}
    assert made["traces"]["left_out"] == {"with more boxes than a trace looks at (4)": 1}
    assert make_box_traces([out], again, prompt="plain")["traces"] == made["traces"]["traces"] == 8
    assert traces.read_bytes() == again.read_bytes()
    found = {trace.sample_id: trace for trace in read_trajectories(traces)}
    assert "coco_count/1/cat" not in found
    assert len(found["coco_count/1/dog"].calls[0].crops) == 2, "each of the two that it counts"
    for trace in found.values():
        check_trace(trace, where="here")
    # The answer must not be mentioned before the look.
    assert "dog" not in found["coco_region/5"].messages[1].content
    assert "I look closer at dog." in found["coco_count/1/dog"].messages[1].content
