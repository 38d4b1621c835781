import math

import pytest

from vtune.metrics.pseudo_confidence import CONFIDENCES, DEFAULT
from vtune.schema.box import Box

SIZE = (200, 100)
MIDDLE: Box = (90.0, 40.0, 110.0, 60.0)
CORNER: Box = (0.0, 0.0, 40.0, 10.0)
NOTHING: Box = (0.0, 0.0, 0.0, 0.0)

WORKED = {
    # Areas of 20 x 20 and 40 x 10 out of 20,000 square pixels.
    "area_ratio": [0.02, 0.02, 0.0],
    # The corner box's centre (20, 5) is √(80² + 45²) = 91.79 from (100, 50); a corner is √(100² + 50²) away.
    "center_bias": [1.0, 1 - math.sqrt(8425) / math.sqrt(12500), 0.0],
    "aspect_ratio": [1.0, 0.25, 0.0],
    "fixed": [1.0, 1.0, 1.0],
    "order": [1.0, 1 / 2, 1 / 3],
}


def test_every_confidence_except_the_random_one_has_a_hand_calculation() -> None:
    assert set(CONFIDENCES) == {*WORKED, "random"}
    assert DEFAULT == "area_ratio"


@pytest.mark.parametrize("name", WORKED)
def test_a_confidence_matches_the_hand_calculation(name: str) -> None:
    found = CONFIDENCES[name]([MIDDLE, CORNER, NOTHING], SIZE, "a")
    assert found == pytest.approx(WORKED[name], abs=1e-12)


def test_a_tall_box_has_the_confidence_of_a_wide_one() -> None:
    assert CONFIDENCES["aspect_ratio"]([(0.0, 0.0, 10.0, 40.0)], SIZE, "a") == [0.25]


def test_a_random_confidence_depends_only_on_the_picture() -> None:
    boxes = [MIDDLE, CORNER, NOTHING]
    draw = CONFIDENCES["random"]
    assert draw(boxes, SIZE, "a") == draw(boxes[::-1], SIZE, "a") != draw(boxes, SIZE, "b")
    assert all(0 <= one < 1 for one in draw(boxes, SIZE, "a"))
    assert len(set(draw(boxes, SIZE, "a"))) == 3
