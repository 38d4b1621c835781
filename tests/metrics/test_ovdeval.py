import numpy as np
import pytest
from hypothesis import given, settings

from tests.metrics.detections import MINI, mini, published, results, sets, summary
from vtune.metrics.detection_set import Answered, Detection, matches, numbers
from vtune.metrics.ovdeval import suppressed
from vtune.schema.annotated import AnnotatedPicture, Annotation

EXACT = 1e-9


def slow_rule(answered: Answered) -> list[Detection]:
    """A slow reference on arrays: of the boxes that overlap a true box, only the first ranked stays."""
    predictions = list(answered.detections)
    boxes = np.array([one.sides for one in predictions]).reshape(-1, 4)
    sure = np.array([one.score for one in predictions])
    keep, drop = [], []
    for x, y, width, height in (one.sides for one in answered.picture.annotations):
        right, bottom = boxes[:, 0] + boxes[:, 2], boxes[:, 1] + boxes[:, 3]
        wide = np.clip(np.minimum(right, x + width) - np.maximum(boxes[:, 0], x), 0, None)
        high = np.clip(np.minimum(bottom, y + height) - np.maximum(boxes[:, 1], y), 0, None)
        union = boxes[:, 2] * boxes[:, 3] + width * height - wide * high
        rivals = np.flatnonzero(wide * high / np.where(union > 0, union, 1) > 0.5)
        ranked = rivals[np.argsort(sure[rivals], kind="stable")][::-1].tolist()
        keep += ranked[:1]
        drop += ranked[1:]
    return [one for at, one in enumerate(predictions) if at in keep or at not in drop]


@settings(max_examples=70, deadline=None)
@given(answered=sets())
def test_the_remaining_boxes_and_score_match_the_slow_reference(answered: list[Answered]) -> None:
    left = [suppressed(one) for one in answered]
    slow = [Answered(one.picture, tuple(slow_rule(one))) for one in answered]
    assert [one.detections for one in left] == [one.detections for one in slow]
    found = numbers(matches(left), [one.picture.identity for one in left])
    assert found == pytest.approx(summary(published(slow), results(slow)), abs=EXACT)


@pytest.mark.skipif(not MINI.is_file(), reason="coco-mini is not here")
def test_a_photograph_with_additional_names_per_box_scores_like_the_slow_reference() -> None:
    content, pictures = mini()
    answered = [
        Answered(
            picture,
            tuple(
                Detection(kind, one.sides, score)
                for number, one in enumerate(picture.annotations)
                for kind, score in ((one.category, 0.5), (one.category % 5 + 1, 0.5 + 0.1 * (number % 3 - 1)))
            ),
        )
        for picture in pictures
    ]
    slow = [Answered(one.picture, tuple(slow_rule(one))) for one in answered]
    assert 0 < len(results(slow)) < len(results(answered))
    left = matches([suppressed(one) for one in answered])
    found = numbers(left, [picture.identity for picture in pictures])
    assert found == pytest.approx(summary(content, results(slow)), abs=EXACT)


def picture(*annotations: Annotation) -> AnnotatedPicture:
    return AnnotatedPicture(1, 100, 100, "", {}, annotations)


SQUARE = (0.0, 0.0, 20.0, 20.0)
RED = Annotation(1, 0, SQUARE, 400.0, False)


def kinds(*annotations: Annotation, said: list[Detection]) -> list[int]:
    return [one.category for one in suppressed(Answered(picture(*annotations), tuple(said))).detections]


def test_a_more_confident_wrong_name_suppresses_the_right_one() -> None:
    red, blue = Detection(0, SQUARE, 0.5), Detection(1, SQUARE, 0.9)
    assert kinds(RED, said=[red, blue]) == [1]


def test_among_equally_confident_names_the_last_stays() -> None:
    assert kinds(RED, said=[Detection(kind, SQUARE, 0.5) for kind in (0, 1, 2)]) == [2]


def test_a_box_with_exactly_half_overlap_does_not_compete() -> None:
    half = Detection(1, (0.0, 0.0, 20.0, 10.0), 0.9)
    assert kinds(RED, said=[Detection(0, SQUARE, 0.5), half]) == [0, 1]


def test_a_prediction_that_loses_at_one_box_and_wins_at_another_stays() -> None:
    near = Annotation(2, 0, (4.0, 0.0, 20.0, 20.0), 400.0, False)
    first, between = Detection(0, SQUARE, 0.9), Detection(1, (8.0, 0.0, 20.0, 20.0), 0.5)
    assert kinds(RED, near, said=[first, between]) == [0]
    far = Annotation(2, 0, (12.0, 0.0, 20.0, 20.0), 400.0, False)
    both = Detection(1, (6.0, 0.0, 20.0, 20.0), 0.5)
    assert kinds(RED, far, said=[first, both]) == [0, 1]


def test_without_annotations_all_predictions_stay() -> None:
    assert kinds(said=[Detection(0, SQUARE, 0.5)] * 2) == [0, 0]
