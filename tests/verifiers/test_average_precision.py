import contextlib
import io
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from vtune.verifiers.average_precision import MOST, THRESHOLDS, average_precision, by_area
from vtune.verifiers.boxes import LabelledBox

LABELS = ["cup", "pen", "dog"]


def reference(ranked: list[LabelledBox], truth: list[LabelledBox]) -> list[float]:
    """AP at each threshold by pycocotools for one picture; the score is the rank."""
    numbers = itertools.count(1)
    gold, found = COCO(), COCO()
    gold.dataset = {
        "images": [{"id": 1}],
        "categories": [{"id": LABELS.index(label), "name": label} for label in LABELS],
        "annotations": [entry(one, next(numbers)) for one in truth],
    }
    found.dataset = gold.dataset | {
        "annotations": [entry(one, number) | {"score": -number} for number, one in enumerate(ranked, start=1)]
    }
    with contextlib.redirect_stdout(io.StringIO()):
        gold.createIndex()
        found.createIndex()
        judge = COCOeval(gold, found, "bbox")
        judge.evaluate()
        judge.accumulate()
    precision = judge.eval["precision"][
        :, :, :, 0, 2
    ]  # axes (threshold, recall, label), for all areas and 100 detections
    return [float(row[row > -1].mean()) for row in precision]


def entry(one: LabelledBox, number: int) -> dict[str, object]:
    x0, y0, x1, y1 = one.box
    width, height = x1 - x0, y1 - y0
    return {
        "id": number,
        "image_id": 1,
        "category_id": LABELS.index(one.label),
        "bbox": [x0, y0, width, height],
        "area": width * height,
        "iscrowd": 0,
    }


sides = st.integers(0, 10).map(float)
boxes = st.builds(
    lambda label, x, y, w, h: LabelledBox(label, (x, y, x + w + 1, y + h + 1)),
    st.sampled_from(LABELS),
    sides,
    sides,
    sides,
    sides,
)


@settings(max_examples=60, deadline=None)
@given(predicted=st.lists(boxes, max_size=12), truth=st.lists(boxes, min_size=1, max_size=6))
def test_every_precision_matches_pycocotools(predicted: list[LabelledBox], truth: list[LabelledBox]) -> None:
    ranked = by_area(predicted)
    assert average_precision(ranked, truth) == pytest.approx(reference(ranked, truth), abs=1e-6)


def test_many_boxes_are_truncated_like_in_pycocotools() -> None:
    truth = [LabelledBox("cup", (10.0 * k, 0.0, 10.0 * k + 8, 8.0)) for k in range(MOST + 20)]
    for ranked in (truth, truth[::-1], [truth[0]] * 7 + truth[::3]):
        assert average_precision(ranked, truth) == pytest.approx(reference(ranked, truth), abs=1e-6)


def test_the_thresholds_are_those_of_coco() -> None:
    assert pytest.approx([0.5 + 0.05 * k for k in range(10)]) == THRESHOLDS
    cup = LabelledBox("cup", (0.0, 0.0, 10.0, 10.0))
    short = LabelledBox("cup", (0.0, 0.0, 10.0, 7.6))
    assert average_precision([short], [cup]) == pytest.approx([1.0] * 6 + [0.0] * 4)


def test_the_largest_box_ranks_first_whatever_the_order() -> None:
    small, large = LabelledBox("cup", (0.0, 0.0, 1.0, 1.0)), LabelledBox("cup", (0.0, 0.0, 9.0, 9.0))
    assert by_area([small, large]) == by_area([large, small]) == [large, small]
