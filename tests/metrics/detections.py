"""Pictures with annotations and predictions, and pycocotools' direct scores for them."""

import contextlib
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from vtune.metrics.detection_set import NUMBERS, Answered, Detection
from vtune.schema.annotated import AnnotatedPicture, Annotation, annotation_of

MINI = Path(__file__).parents[3] / "shared" / "data" / "coco-mini" / "instances.json"

sides = st.tuples(*[st.integers(0, 60)] * 2, *[st.integers(1, 120)] * 2).map(
    lambda box: tuple(map(float, box))
)
scores = st.sampled_from([0.1, 0.5, 0.5, 0.9, 1.0])
"""Few distinct values, as ties are error-prone."""


@st.composite
def sets(draw: st.DrawFn) -> list[Answered]:
    """Pictures with crowds, ties, objects of all sizes, and some without annotations or predictions."""
    found, number = [], 0
    identities = draw(st.lists(st.integers(1, 99), min_size=1, max_size=5, unique=True))
    for identity in identities:
        annotations = []
        for box, kind, crowd in draw(
            st.lists(st.tuples(sides, st.integers(0, 2), st.booleans()), max_size=5)
        ):
            number += 1
            annotations.append(Annotation(number, kind, box, box[2] * box[3] * 0.7, crowd))  # type: ignore[arg-type]
        near = [one.sides for one in annotations]
        box = st.one_of(sides, st.sampled_from(near)) if near else sides
        predictions = draw(st.lists(st.builds(Detection, st.integers(0, 2), box, scores), max_size=8))
        picture = AnnotatedPicture(identity, 200, 200, "", {}, tuple(annotations))
        found.append(Answered(picture, tuple(predictions)))
    return found


def published(answered: Sequence[Answered]) -> dict[str, Any]:
    """The content of an `instances_*.json`."""
    return {
        "images": [
            {
                "id": one.picture.identity,
                "file_name": f"{one.picture.identity}.jpg",
                "width": 200,
                "height": 200,
            }
            for one in answered
        ],
        "categories": [{"id": number, "name": str(number)} for number in range(91)],
        "annotations": [
            {
                "id": a.identity,
                "image_id": one.picture.identity,
                "category_id": a.category,
                "bbox": list(a.sides),
                "area": a.area,
                "iscrowd": int(a.crowd),
            }
            for one in answered
            for a in one.picture.annotations
        ],
    }


def results(answered: Sequence[Answered]) -> list[dict[str, Any]]:
    """The content of a results file for COCO's server."""
    return [
        {"image_id": one.picture.identity, "category_id": d.category, "bbox": list(d.sides), "score": d.score}
        for one in answered
        for d in one.detections
    ]


def summary(content: dict[str, Any], found: list[dict[str, Any]]) -> dict[str, float]:
    """The twelve numbers of pycocotools, read from results by its own loader, without those that are -1."""
    truth = COCO()
    truth.dataset = json.loads(json.dumps(content))
    with contextlib.redirect_stdout(io.StringIO()):
        truth.createIndex()
        if found:
            guesses = truth.loadRes(json.loads(json.dumps(found)))
        else:  # pycocotools cannot load an empty list
            guesses = COCO()
            guesses.dataset = truth.dataset | {"annotations": []}
            guesses.createIndex()
        judge = COCOeval(truth, guesses, "bbox")
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    return {name: float(value) for name, value in zip(NUMBERS, judge.stats, strict=True) if value > -1}


def mini() -> tuple[dict[str, Any], list[AnnotatedPicture]]:
    """The small COCO subset, as published and as pictures."""
    content = json.loads(MINI.read_text())
    pictures = []
    for image in content["images"]:
        own = [entry for entry in content["annotations"] if entry["image_id"] == image["id"]]
        annotations = tuple(map(annotation_of, own))
        pictures.append(AnnotatedPicture(image["id"], image["width"], image["height"], "", {}, annotations))
    return content, pictures
