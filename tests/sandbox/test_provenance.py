"""Regions follow any view of an array; pictures without a history are located correctly, or not at all."""

from pathlib import Path

import cv2
import numpy as np
import PIL.Image
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.sandbox.conftest import picture
from vtune.sandbox.guest.greys import Source
from vtune.sandbox.guest.hooks import Tracker
from vtune.sandbox.guest.locate import find
from vtune.sandbox.guest.maps import Matrix, compose, inverted
from vtune.sandbox.guest.provenance import region_of, track
from vtune.sandbox.guest.regions import Cuts, pasted, whole_input

HEIGHT, WIDTH = 30, 40


@st.composite
def views(draw: st.DrawFn) -> list[tuple[str, tuple[int, ...]]]:
    """A few steps, each with numbers that determine its arguments."""
    step = st.tuples(
        st.sampled_from(
            ["slice", "flip rows", "flip columns", "transpose", "copy", "scale", "plain", "quarter turn"]
        ),
        st.tuples(*[st.integers(0, 1000)] * 6),
    )
    return draw(st.lists(step, max_size=6))


def apply(array: np.ndarray, name: str, numbers: tuple[int, ...]) -> np.ndarray:
    height, width = array.shape[:2]
    if name == "slice":
        y0, x0 = numbers[0] % height, numbers[1] % width
        y1, x1 = y0 + 1 + numbers[2] % (height - y0), x0 + 1 + numbers[3] % (width - x0)
        return array[y0 : y1 : 1 + numbers[4] % 2, x0 : x1 : 1 + numbers[5] % 2]
    if name == "plain":
        return array.view(np.ndarray)
    return {
        "flip rows": lambda: array[::-1],
        "flip columns": lambda: array[:, ::-1],
        "transpose": lambda: array.swapaxes(0, 1),
        "quarter turn": lambda: np.rot90(array),
        "copy": lambda: array.copy(),
        "scale": lambda: array * 1.0,
    }[name]()


@given(views(), st.booleans())
@settings(max_examples=120)
def test_the_box_of_a_view_holds_just_the_pixels_it_shows(
    steps: list[tuple[str, tuple[int, ...]]], grey: bool
) -> None:
    ys, xs = np.mgrid[:HEIGHT, :WIDTH]
    coordinates = np.stack([ys, xs, ys], axis=-1)
    array = track(coordinates.copy(), whole_input(0, (WIDTH, HEIGHT), Cuts()))
    skipping = 1
    for name, numbers in steps:
        if name in ("copy", "scale") and region_of(array) is not None:
            array = track(array, region_of(array))
        array = apply(array, name, numbers)
        # In a view one pixel thin, the strides no longer tell which axis is which.
        assume(min(array.shape[:2]) > 1)
        skipping *= 2 if name == "slice" else 1
    region = region_of(array[:, :, 1] if grey else array)
    if region is None:
        # A plain copy loses its history.
        assert any(name == "plain" for name, _ in steps)
        return
    x0, y0, x1, y1 = region.box
    seen_y, seen_x = array[..., 0], array[..., 1]
    assert (y0, x0) <= (seen_y.min(), seen_x.min())
    assert seen_y.max() < y1 <= min(HEIGHT, seen_y.max() + skipping + 1)
    assert seen_x.max() < x1 <= min(WIDTH, seen_x.max() + skipping + 1)
    assert seen_y.min() - skipping < y0
    assert seen_x.min() - skipping < x0


def tracker_of(root: Path, image: Path) -> Tracker:
    tracker = Tracker()
    tracker.root = str(root.resolve())
    tracker.add_input(image.name, (40, 30), 6)
    return tracker


@pytest.mark.parametrize("linked", [False, True], ids=["in the workspace", "behind a link"])
def test_an_input_is_known_by_any_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linked: bool) -> None:
    workspace = tmp_path / "ws"
    workspace.mkdir()
    image = (tmp_path if linked else workspace) / "image_0.png"
    image.write_bytes(b"picture")
    if linked:
        (workspace / image.name).symlink_to("../image_0.png")
    tracker = tracker_of(workspace, image)
    monkeypatch.chdir(workspace)
    for path in ("image_0.png", "./image_0.png", workspace / "image_0.png", str(image.resolve())):
        region = tracker.region_of_file(path, upright=False)
        assert region is not None
        assert region.size == (40, 30)
        turned = tracker.region_of_file(path, upright=True)
        assert turned is not None
        assert turned.size == (30, 40)
    assert tracker.region_of_file("other.png", upright=False) is None
    assert tracker.region_of_file(7, upright=False) is None
    copy = tracker.region_of_content(b"picture", upright=False)
    assert copy is not None
    assert copy.size == (40, 30)
    assert tracker.region_of_content(b"Picture", upright=False) is None


def test_a_picture_saved_anew_loses_its_old_region(tmp_path: Path) -> None:
    tracker = tracker_of(tmp_path, tmp_path / "image_0.png")
    path = str(tmp_path.resolve() / "c.png")
    tracker.note_saved(path, whole_input(0, (40, 30), Cuts()))
    assert tracker.saved[path] is not None
    tracker.note_saved(path, None)
    assert path not in tracker.saved
    assert tracker.written == [path, path]


def test_a_canvas_shows_what_was_put_onto_it_last() -> None:
    source = whole_input(0, (400, 300), Cuts())
    first = source.moved((1, 0, 10, 0, 1, 20), (50, 60))
    second = source.moved((1, 0, 200, 0, 1, 100), (50, 60))
    assert first is not None
    assert second is not None
    canvas = pasted(None, first)
    assert canvas is not None
    assert [part.box for part in canvas.parts] == [(10, 20, 60, 80)]
    covered = pasted(canvas, second)
    assert covered is not None
    assert [part.box for part in covered.parts] == [(200, 100, 250, 160)]


def test_a_close_up_put_inside_is_shown_beside_and_a_piece_put_back_is_not() -> None:
    source = whole_input(0, (400, 300), Cuts())
    close_up = source.moved((0.5, 0, 200, 0, 0.5, 100), (100, 80))
    assert close_up is not None
    inset = pasted(source, close_up.moved((1, 0, 0, 0, 1, 0), (400, 300)))
    assert inset is not None
    assert [part.box for part in inset.parts] == [(0, 0, 400, 300), (200, 100, 250, 140)]
    piece = source.moved((1, 0, 200, 0, 1, 100), (100, 80))
    assert piece is not None
    assert pasted(source, piece.moved((1, 0, -203, 0, 1, -100), (400, 300))) == source


def test_a_change_of_perspective_is_followed() -> None:
    region = whole_input(0, (400, 300), Cuts())
    corners = np.float32([[0, 0], [100, 0], [100, 80], [0, 80]])
    there = cv2.getPerspectiveTransform(corners, np.float32([[60, 40], [150, 50], [160, 130], [50, 140]]))
    matrix = tuple(float(value) for value in there.ravel())
    bent = region.moved(matrix, (100, 80))
    assert bent is not None
    assert bent.box == pytest.approx((50, 40, 160, 140), abs=1e-3)
    corner = bent.moved((1, 0, 99, 0, 1, 79), (1, 1))
    assert corner is not None
    assert corner.box[2:] == pytest.approx((160, 130), abs=0.1)
    back = inverted(matrix)
    assert back is not None
    assert compose(matrix, back) == pytest.approx((1, 0, 0, 0, 1, 0, 0, 0, 1), abs=1e-9)


@pytest.mark.parametrize("angle", [-170, -60, -20, 7, 30, 45, 90])
def test_a_crop_of_a_turned_picture_has_the_box_of_the_pixels_in_it(angle: int) -> None:
    ys, xs = np.mgrid[:HEIGHT, :WIDTH]
    input_ = PIL.Image.fromarray(np.stack([xs, ys, xs * 0 + 255], axis=-1).astype(np.uint8))
    turned = np.asarray(input_.resize((WIDTH * 4, HEIGHT * 4), 0).rotate(angle, expand=True))
    height, width = turned.shape[:2]
    # As `rotate` does: about the centre.
    cos, sin = np.cos(np.radians(angle)) / 4, np.sin(np.radians(angle)) / 4
    middle = (WIDTH / 2 - cos * width / 2 + sin * height / 2, HEIGHT / 2 - sin * width / 2 - cos * height / 2)
    region = whole_input(0, (WIDTH, HEIGHT), Cuts()).moved(
        (cos, -sin, middle[0], sin, cos, middle[1]), (width, height)
    )
    assert region is not None
    for x, y in ((0, 0), (width // 2, 0), (0, height // 2), (width // 2, height // 2)):
        part = turned[y : y + height // 2, x : x + width // 2]
        part = part[part[..., 2] == 255]
        crop = region.moved((1, 0, x, 0, 1, y), (width // 2, height // 2))
        assert crop is not None
        left, top, right, bottom = crop.box
        assert (left, top) == pytest.approx(part[:, :2].min(0), abs=1)
        assert (right, bottom) == pytest.approx(part[:, :2].max(0) + 1, abs=1)


def grey(pixels: np.ndarray) -> np.ndarray:
    return cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)


SOURCE = grey(picture())


def located(picture: np.ndarray, source: np.ndarray) -> Matrix | None:
    found = find(picture, Source(source), ())
    return None if found is None else found.matrix


@given(st.integers(0, 330), st.integers(0, 230), st.integers(24, 70), st.integers(24, 70))
@settings(max_examples=40, deadline=None)
def test_a_copied_patch_is_located_exactly(x: int, y: int, width: int, height: int) -> None:
    matrix = located(SOURCE[y : y + height, x : x + width].copy(), SOURCE)
    assert matrix == (1, 0, x, 0, 1, y)


@pytest.mark.parametrize("zoom", [2, 3, 4, 0.5])
def test_a_resized_patch_is_located_to_the_pixel(zoom: float) -> None:
    patch = cv2.resize(SOURCE[60:140, 100:200], None, fx=zoom, fy=zoom, interpolation=cv2.INTER_AREA)
    matrix = located(patch, SOURCE)
    assert matrix is not None
    assert (matrix[0] * zoom, matrix[2], matrix[5]) == (1, 100, 60)


@pytest.mark.parametrize("seed", range(1, 9))
def test_a_patch_of_another_picture_is_not_located(seed: int) -> None:
    other = grey(picture(seed=seed))
    assert located(other[50:110, 80:150], SOURCE) is None
    assert located(other, SOURCE) is None


def test_a_flat_patch_is_not_located() -> None:
    source = np.full((200, 200), 90, np.uint8)
    assert located(source[20:80, 20:80], source) is None
