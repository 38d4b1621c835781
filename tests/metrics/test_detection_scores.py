"""The scorers `coco` and `ovdeval` on a policy's replies, compared with pycocotools."""

from dataclasses import replace

import pytest

from tests.metrics.detections import MINI, mini, results, summary
from tests.metrics.test_ovdeval import slow_rule
from vtune.errors import DataError
from vtune.metrics.benchmarks import SCORERS, Mark
from vtune.metrics.detection_set import NUMBERS, Answered, Detection
from vtune.metrics.pseudo_confidence import CONFIDENCES
from vtune.schema.annotated import AnnotatedPicture, Annotation, to_extra
from vtune.verifiers.boxes import LabelledBox

EXACT = 1e-9
NEEDS_MINI = pytest.mark.skipif(not MINI.is_file(), reason="coco-mini is not here")


def mark(picture: AnnotatedPicture, boxes: list[LabelledBox] | None, score: float | None = 0.5) -> Mark:
    said = None if boxes is None else tuple(boxes)
    name = f"{picture.subset}/{picture.identity}"
    return Mark(name, to_extra(picture), score, boxes is None, "s", name, said)


def said_of(content: dict, pictures: list[AnnotatedPicture]) -> list[Mark]:
    """A reply with every annotation moved slightly to the right, and every third one twice."""
    names = {entry["id"]: entry["name"] for entry in content["categories"]}
    marks = []
    for picture in pictures:
        boxes = []
        for number, one in enumerate(picture.annotations):
            x, y, width, height = one.sides
            x += width * 0.03 * (number % 8)
            for _ in range(1 + (number % 3 == 0)):
                boxes.append(LabelledBox(names[one.category], (x, y, x + width, y + height)))
        labels = {names[one.category]: one.category for one in picture.annotations}
        marks.append(mark(replace(picture, labels=labels), boxes))
    return marks


def as_results(content: dict, marks: list[Mark], pictures: list[AnnotatedPicture]) -> list[dict]:
    """The same reply as a results file; the score is the share of the picture."""
    kinds = {entry["name"]: entry["id"] for entry in content["categories"]}
    found = []
    for picture, one in zip(pictures, marks, strict=True):
        for label, (x0, y0, x1, y1) in ((entry.label, entry.box) for entry in one.boxes or ()):
            size = (x1 - x0) * (y1 - y0) / (picture.width * picture.height)
            box = [x0, y0, x1 - x0, y1 - y0]
            found.append(
                {"image_id": picture.identity, "category_id": kinds[label], "bbox": box, "score": size}
            )
    return found


@NEEDS_MINI
def test_replies_score_like_their_results_file_in_pycocotools() -> None:
    content, pictures = mini()
    marks = said_of(content, pictures)
    found = SCORERS["coco"](marks)
    wanted = summary(content, as_results(content, marks, pictures))
    assert {"ap": found["score"]} | {name: found[name] for name in NUMBERS[1:]} == pytest.approx(
        wanted, abs=EXACT
    )
    assert 0.1 < found["score"] < 0.9
    assert found["confidences"]["area_ratio"] == pytest.approx(found["score"], abs=EXACT)
    assert set(found["confidences"]) == set(CONFIDENCES)
    assert len(set(found["confidences"].values())) > 3
    sure = found["intervals"]["score"]
    assert sure["low"] < found["score"] < sure["high"]
    assert (found["n"], found["clusters"], found["unreadable"], found["foreign"]) == (26, 26, 0, 0)


@NEEDS_MINI
@pytest.mark.parametrize("name", ["single", "multiple"])
def test_a_subset_scores_as_if_it_were_the_whole_set(name: str) -> None:
    content, pictures = mini()
    alone_on_it = replace(pictures[0].annotations[0], identity=1)
    pictures = [*pictures, replace(pictures[0], identity=1, annotations=(alone_on_it,))]
    marks = said_of(content, pictures)
    part = [p for p in pictures if (len(p.annotations) == 1) == (name == "single")]
    kept = [one for one, p in zip(marks, pictures, strict=True) if p in part]
    alone = SCORERS["coco"](kept)
    found = SCORERS["coco"](marks)["categories"][name]
    assert found["n"] == len(part) > 0
    assert {key: alone[key] for key in found if key != "n"} == pytest.approx(
        {key: value for key, value in found.items() if key != "n"}, abs=EXACT
    )


def picture(
    identity: int, subset: str = "color", names: tuple[str, ...] = ("red", "blue")
) -> AnnotatedPicture:
    box = Annotation(identity, 0, (10.0, 10.0, 50.0, 50.0), 2500.0, crowd=False)
    return AnnotatedPicture(
        identity, 100, 100, subset, {name: number for number, name in enumerate(names)}, (box,)
    )


RED = LabelledBox("red", (10.0, 10.0, 60.0, 60.0))
LARGER_BLUE = LabelledBox("blue", (9.0, 9.0, 62.0, 62.0))
ELSEWHERE = LabelledBox("red", (70.0, 70.0, 90.0, 90.0))


def test_an_unreadable_reply_counts_as_a_miss_and_an_unscored_one_is_left_out() -> None:
    marks = [mark(picture(n), [RED]) for n in (1, 2, 3)]
    missed = SCORERS["coco"]([*marks, mark(picture(4), None, 0.0)])
    # Recall 3/4 reaches 76 of the 101 recall levels.
    assert missed["score"] == pytest.approx(76 / 101)
    assert (missed["n"], missed["unreadable"], missed["unscored"]) == (4, 1, 0)
    left_out = SCORERS["coco"]([*marks, mark(picture(4), None, None)])
    assert left_out["score"] == pytest.approx(1.0)
    assert (left_out["n"], left_out["unscored"]) == (4, 1)


@pytest.mark.parametrize("name", ["coco", "ovdeval"])
def test_without_scored_replies_there_is_no_score(name: str) -> None:
    found = SCORERS[name]([mark(picture(1), None, None)])
    assert "score" not in found
    assert "intervals" not in found
    assert found["unscored"] == 1


def test_an_unrequested_label_changes_no_score_and_is_counted() -> None:
    plain = SCORERS["coco"]([mark(picture(1), [RED])])
    found = SCORERS["coco"]([mark(picture(1), [RED, LabelledBox("zebra", (0.0, 0.0, 99.0, 99.0))])])
    assert (found["score"], found["foreign"], found["boxes"]) == (plain["score"], 1, 2)


def test_each_rollout_is_a_separate_set() -> None:
    right, wrong = mark(picture(1), [RED]), mark(picture(1), [ELSEWHERE])
    found = SCORERS["coco"]([right, wrong, wrong, wrong])
    assert found["score"] == pytest.approx(1 / 4)


def test_two_samples_about_one_picture_are_refused() -> None:
    twice = replace(mark(picture(1), [RED]), sample_id="another")
    with pytest.raises(DataError, match="also about picture 1"):
        SCORERS["coco"]([mark(picture(1), [RED]), twice])


def test_a_sample_without_annotations_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(DataError, match="scorer: mean"):
        SCORERS["coco"]([Mark("a", {}, 1.0, unreadable=False)])


def test_naming_an_object_with_every_label_pays_in_ap_but_not_in_nms_ap() -> None:
    """The purpose of NMS-AP: a more confident wrong name suppresses the right one."""
    hedged = [mark(picture(n), [RED, LARGER_BLUE]) for n in (1, 2)]
    assert SCORERS["coco"](hedged)["score"] == pytest.approx(1.0)
    assert SCORERS["ovdeval"](hedged)["score"] == pytest.approx(0.0)
    surer = [mark(picture(n), [RED, LabelledBox("blue", (11.0, 11.0, 59.0, 59.0))]) for n in (1, 2)]
    assert SCORERS["ovdeval"](surer)["score"] == pytest.approx(1.0)


def test_ovdeval_subsets_have_equal_weight_and_separate_categories() -> None:
    color = [mark(picture(n), [RED]) for n in (1, 2, 3)]
    # The same picture or category id means something else in another subset.
    logo = [mark(picture(1, "logo", ("cup", "red")), [RED])]
    found = SCORERS["ovdeval"]([*color, *logo])
    assert found["categories"]["color"]["score"] == pytest.approx(1.0)
    assert found["categories"]["logo"]["score"] == pytest.approx(0.0)
    assert found["score"] == pytest.approx(0.5)
    assert (found["categories"]["color"]["n"], found["n"]) == (3, 4)


def test_ovdeval_has_no_mean_if_a_subset_has_no_score() -> None:
    color = [mark(picture(n), [RED]) for n in (1, 2)]
    lost = replace(mark(picture(1, "logo", ("cup", "red")), [RED]), score=None)
    found = SCORERS["ovdeval"]([*color, lost])
    assert (found["unscored_parts"], found["unscored"], found["confidences"]) == (["logo"], 1, {})
    assert not {"score", "ap50", "intervals"} & set(found)
    assert found["categories"]["color"]["score"] == pytest.approx(1.0)


@NEEDS_MINI
def test_ovdeval_scores_photographs_like_the_slow_reference_and_pycocotools() -> None:
    content, pictures = mini()
    marks = said_of(content, pictures)
    for number, one in enumerate(marks):
        first = pictures[number].annotations[0]
        wrong = next(entry["name"] for entry in content["categories"] if entry["id"] != first.category)
        x, y, width, height = first.sides
        grown = LabelledBox(wrong, (x, y, x + width * 1.01, y + height))
        marks[number] = replace(one, boxes=(*(one.boxes or ()), grown))
    # Labels of other pictures are known, too: the set has one list of categories.
    known = {label for p in pictures for label in (entry.category for entry in p.annotations)}
    rows = [row for row in as_results(content, marks, pictures) if row["category_id"] in known]
    kept = []
    for one in pictures:
        own = tuple(
            Detection(row["category_id"], tuple(row["bbox"]), row["score"])
            for row in rows
            if row["image_id"] == one.identity
        )
        kept.append(Answered(one, tuple(slow_rule(Answered(one, own)))))
    wanted = summary(content, results(kept))
    found = SCORERS["ovdeval"](marks)
    assert {"ap": found["score"]} | {name: found[name] for name in NUMBERS[1:]} == pytest.approx(
        wanted, abs=EXACT
    )
    assert len(results(kept)) < len(rows)
