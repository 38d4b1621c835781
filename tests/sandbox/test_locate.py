"""Pictures without a history are located where they come from, at any turn and zoom, and nowhere else."""

import cv2
import numpy as np
import pytest

from tests.sandbox.conftest import picture
from vtune.sandbox.guest.greys import Source
from vtune.sandbox.guest.locate import find, region_in
from vtune.sandbox.guest.regions import Cuts, whole_input
from vtune.schema.box import iou

GREY = cv2.cvtColor(picture(), cv2.COLOR_RGB2GRAY)
SOURCE = Source(GREY)
BOX = (100, 60, 220, 150)
PATCH = GREY[60:150, 100:220]

CHANGES = {
    "none": PATCH,
    "mirrored": PATCH[:, ::-1],
    "upside down": PATCH[::-1],
    "a quarter turn": np.rot90(PATCH),
    "a half turn": np.rot90(PATCH, 2),
    "three quarters": np.rot90(PATCH, 3),
    "across the diagonal": PATCH.T,
    "a negative": 255 - PATCH,
    "darker": (PATCH * 0.4 + 10).astype(np.uint8),
    "blurred": cv2.GaussianBlur(PATCH, (5, 5), 0),
    "enlarged": cv2.resize(PATCH, None, fx=2.7, fy=2.7),
    "made small": cv2.resize(PATCH, None, fx=0.6, fy=0.6, interpolation=cv2.INTER_AREA),
    "framed": cv2.copyMakeBorder(PATCH, 9, 14, 20, 5, cv2.BORDER_CONSTANT, value=255),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_patch_is_located(name: str) -> None:
    found = find(np.ascontiguousarray(CHANGES[name]), SOURCE, ())
    assert found is not None
    assert iou(found.box, BOX) > 0.95


@pytest.mark.parametrize("name", CHANGES)
def test_the_matrix_leads_from_the_picture_to_the_box(name: str) -> None:
    patch = np.ascontiguousarray(CHANGES[name])
    found = find(patch, SOURCE, ())
    assert found is not None
    height, width = patch.shape
    left, top, right, bottom = (20, 9, width - 5, height - 14) if name == "framed" else (0, 0, width, height)
    a, b, c, d, e, f = found.matrix
    xs = [a * x + b * y + c for x in (left, right) for y in (top, bottom)]
    ys = [d * x + e * y + f for x in (left, right) for y in (top, bottom)]
    assert (min(xs), min(ys), max(xs), max(ys)) == pytest.approx(found.box)


def test_a_hint_is_recognised_after_any_stretching() -> None:
    patch = cv2.resize(PATCH, (40, 200))
    assert find(patch, SOURCE, ()) is None
    found = find(patch, SOURCE, ((0, 0, 50, 50), BOX, (105, 60, 225, 150)))
    assert found is not None
    assert found.box == BOX


def test_a_hint_that_is_not_shown_is_not_reported() -> None:
    found = find(PATCH.copy(), SOURCE, ((130, 60, 250, 150), (100, 60, 220, 110)))
    assert found is not None
    assert found.box == BOX


def test_the_region_of_a_framed_picture_ends_at_the_frame() -> None:
    region = region_in(CHANGES["framed"], SOURCE, whole_input(0, (400, 300), Cuts()), ())
    assert region is not None
    assert region.box == BOX


def test_a_pattern_that_repeats_is_not_located() -> None:
    tiled = Source(np.tile(GREY[:75, :100], (4, 4)))
    assert find(tiled.grey[80:140, 110:190].copy(), tiled, ()) is None


def test_a_gradient_is_not_located() -> None:
    sky = np.tile(np.linspace(40, 220, 300).astype(np.uint8)[:, None], (1, 400))
    source = Source(np.clip(sky + np.random.default_rng(0).normal(0, 3, sky.shape), 0, 255).astype(np.uint8))
    patch = cv2.resize(source.grey[100:200, 50:150], (150, 150))
    assert find(patch, source, ()) is None


def test_a_picture_larger_than_its_source_is_not_located() -> None:
    other = cv2.cvtColor(picture(800, 600, seed=3), cv2.COLOR_RGB2GRAY)
    assert find(other, SOURCE, ()) is None
