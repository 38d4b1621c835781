"""What honest enhancement keeps is verified; what shows nothing of a region never is."""

from collections.abc import Callable

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.looks.build import BOX, SCENE, crop, scene
from vtune.looks.agreement import Pixels
from vtune.looks.geometry import Map, inverse, map_of, moved, onto
from vtune.looks.verify import Checked, check
from vtune.looks.view import View

Change = Callable[[Pixels], Pixels]


def grey(picture: Pixels) -> Pixels:
    return np.repeat(cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY)[..., None], 3, axis=2)


def levels(change: Callable[[np.ndarray], np.ndarray]) -> Change:
    return lambda picture: np.clip(change(picture.astype(np.float32)), 0, 255).astype(np.uint8)


def enlarged(times: float, how: int = cv2.INTER_CUBIC) -> Change:
    return lambda picture: np.asarray(cv2.resize(picture, None, fx=times, fy=times, interpolation=how))


def clahe(picture: Pixels) -> Pixels:
    return np.repeat(cv2.createCLAHE(3.0, (8, 8)).apply(grey(picture)[..., 0])[..., None], 3, axis=2)


def otsu(picture: Pixels) -> Pixels:
    return np.repeat(cv2.threshold(grey(picture)[..., 0], 0, 255, cv2.THRESH_OTSU)[1][..., None], 3, axis=2)


def marked(picture: Pixels) -> Pixels:
    marked = picture.copy()
    cv2.rectangle(marked, (20, 20), (90, 80), (255, 0, 0), 2)
    cv2.putText(marked, "A", (40, 60), cv2.FONT_HERSHEY_SIMPLEX, 0.6, (0, 255, 0), 1)
    return marked


def jpeg(picture: Pixels) -> Pixels:
    return cv2.imdecode(cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, 40])[1], 1)


def covered(share: float) -> Change:
    def change(picture: Pixels) -> Pixels:
        result = picture.copy()
        result[: int(share * picture.shape[0])] = 0
        return result

    return change


def shuffled(cell: int) -> Change:
    def change(picture: Pixels) -> Pixels:
        high, wide = (side // cell * cell for side in picture.shape[:2])
        cells = picture[:high, :wide].reshape(high // cell, cell, wide // cell, cell, 3).swapaxes(1, 2)
        flat = cells.reshape(-1, cell, cell, 3)
        mixed = flat[np.random.default_rng(0).permutation(len(flat))].reshape(cells.shape)
        return np.ascontiguousarray(mixed.swapaxes(1, 2).reshape(high, wide, 3))

    return change


def small(side: int) -> Change:
    return lambda picture: np.asarray(cv2.resize(picture, (side, side), interpolation=cv2.INTER_AREA))


HONEST: dict[str, Change] = {
    "a crop": lambda picture: picture,
    "grey": grey,
    "enlarged": enlarged(3),
    "enlarged coarsely": enlarged(2, cv2.INTER_NEAREST),
    "a little smaller": enlarged(0.6, cv2.INTER_AREA),
    "more contrast": levels(lambda v: (v - 128) * 1.8 + 128),
    "less contrast": levels(lambda v: (v - 128) * 0.4 + 128),
    "brighter": levels(lambda v: v * 1.4),
    "darker": levels(lambda v: v * 0.5),
    "gamma": levels(lambda v: 255 * (v / 255) ** 0.5),
    "negative": lambda picture: 255 - picture,
    "one channel": lambda picture: np.repeat(picture[..., :1], 3, axis=2),
    "false colours": lambda picture: cv2.applyColorMap(grey(picture)[..., 0], cv2.COLORMAP_JET)[..., ::-1],
    "equalized in tiles": clahe,
    "threshold": otsu,
    "sharpened": lambda picture: cv2.addWeighted(picture, 2.5, cv2.GaussianBlur(picture, (0, 0), 2), -1.5, 0),
    "edges": lambda picture: np.repeat(cv2.Canny(picture, 50, 150)[..., None], 3, axis=2),
    "a box and a letter drawn": marked,
    "median": lambda picture: cv2.medianBlur(picture, 3),
    "JPEG": jpeg,
    "few colours": lambda picture: picture // 64 * 64 + 32,
}

HOSTILE: dict[str, Change] = {
    "black": lambda picture: picture * 0,
    "one colour": lambda picture: np.full_like(picture, 200),
    "its mean": lambda picture: np.full_like(picture, int(picture.mean())),
    "noise": lambda picture: np.random.default_rng(0).integers(0, 256, picture.shape, dtype=np.uint8),
    "blurred beyond use": lambda picture: cv2.GaussianBlur(picture, (0, 0), 25),
    "pixels shuffled": shuffled(1),
    "blocks shuffled": shuffled(8),
    "rows shuffled": lambda picture: picture[np.random.default_rng(0).permutation(len(picture))],
    "two thirds covered": covered(0.67),
    "one pixel": small(1),
    "four pixels a side": small(4),
    "another picture": lambda picture: crop(of=scene(seed=9)),
    "a threshold that nothing passes": lambda picture: (picture > 254).astype(np.uint8) * 255,
    "a trace of it under noise": lambda picture: np.clip(
        0.03 * picture + np.random.default_rng(1).normal(120, 40, picture.shape), 0, 255
    ).astype(np.uint8),
}


def checked(
    picture: Pixels, claim: Map | None = None, box: tuple[float, float, float, float] = BOX
) -> Checked:
    size = (picture.shape[1], picture.shape[0])
    picture = np.ascontiguousarray(picture)
    return check(SCENE, View(picture, size), onto(BOX, size) if claim is None else claim, box)


@pytest.mark.parametrize("change", HONEST)
def test_what_honest_enhancement_keeps_is_verified(change: str) -> None:
    assert checked(HONEST[change](crop())).look == "verified"


@pytest.mark.parametrize("change", HOSTILE)
def test_what_shows_nothing_of_a_region_is_never_verified(change: str) -> None:
    assert checked(HOSTILE[change](crop())).look != "verified"


@pytest.mark.parametrize("upright", [False, True])
@pytest.mark.parametrize("length", [60, 140, 300])
def test_a_strip_of_which_half_is_black_is_not_verified(length: int, upright: bool) -> None:
    box = (100.0, 60.0, 112.0, 60.0 + length) if upright else (10.0, 100.0, 10.0 + length, 112.0)
    size = (round(box[2] - box[0]), round(box[3] - box[1]))
    whole = np.ascontiguousarray(crop(box))
    lighter = (whole // 2 + 90).astype(np.uint8)
    assert check(SCENE, View(lighter, size), onto(box, size), box).look == "verified"
    for half in (lighter[: size[1] // 2], lighter[:, : size[0] // 2]):
        kept = half.copy()
        half[:] = 0
        assert check(SCENE, View(lighter, size), onto(box, size), box).look != "verified"
        half[:] = kept


def test_the_longest_strip_costs_no_more_than_a_square() -> None:
    wall = np.random.default_rng(0).integers(0, 255, (2, 32768, 3), np.uint8)
    box = (0.0, 0.0, 32768.0, 2.0)
    found = check(wall, View(wall // 2, (32768, 2)), onto(box, (32768, 2)), box).found
    assert found is None or found.windows.size <= 2048


@pytest.mark.parametrize("change", ["black", "one colour", "its mean"])
def test_a_constant_picture_is_faked(change: str) -> None:
    assert checked(HOSTILE[change](crop())).look == "faked"


@pytest.mark.parametrize("degrees", [7, 15, 90, 180])
def test_a_turned_picture_is_verified_where_its_map_says_so(degrees: int) -> None:
    picture = crop()
    height, width = picture.shape[:2]
    turn = np.vstack([cv2.getRotationMatrix2D((width / 2, height / 2), degrees, 1), [0, 0, 1]])
    turned = cv2.warpAffine(picture, turn[:2], (width, height))
    there = moved(0.5, 0.5) @ turn @ moved(-0.5, -0.5)
    claim = onto(BOX, (width, height)) @ inverse(there)
    middle = (160.0, 110.0, 210.0, 160.0)
    assert checked(turned, claim, middle).look == "verified"
    # A small turn is within what the register forgives.
    assert degrees < 15 or checked(turned, box=middle).look != "verified"


@pytest.mark.parametrize("off", [(3, 0), (0, -3), (2, 2)])
def test_a_claim_that_is_off_by_rounding_still_holds(off: tuple[int, int]) -> None:
    claim = onto(BOX, (130, 110)) @ moved(*off)
    assert checked(crop(), claim).look == "verified"


def test_the_wrong_place_is_not_verified() -> None:
    elsewhere = crop((300.0, 200.0, 430.0, 310.0))
    assert checked(elsewhere).look != "verified"


def test_a_tile_in_a_canvas_is_found_where_its_map_says() -> None:
    canvas = np.zeros((400, 400, 3), np.uint8)
    canvas[50:160, 200:330] = crop()
    assert checked(canvas, onto(BOX, (130, 110)) @ moved(-200, -50)).look == "verified"
    assert checked(canvas, onto(BOX, (130, 110))).look != "verified"


def test_the_size_that_the_policy_sees_decides_not_the_size_that_was_returned() -> None:
    large = np.ascontiguousarray(enlarged(4)(crop()))
    size = (large.shape[1], large.shape[0])
    claim = onto(BOX, size)
    assert check(SCENE, View(large, size), claim, BOX).look == "verified"
    assert check(SCENE, View(large, (9, 9)), claim, BOX).look == "illegible"


def test_smooth_shading_is_known_by_its_very_pixels_and_never_called_faked() -> None:
    shaded = np.empty((448, 448, 3), np.uint8)
    shaded[..., 0] = np.linspace(60, 190, 448)[None, :]
    shaded[..., 1] = 119
    shaded[..., 2] = np.linspace(60, 190, 448)[:, None]
    box = (252.0, 252.0, 308.0, 308.0)
    for change, look in ((lambda c: c, "verified"), (lambda c: c * 0, "unverified"), (grey, "unverified")):
        view = View(np.ascontiguousarray(change(crop(box, shaded))), (56, 56))
        assert check(shaded, view, onto(box, (56, 56)), box).look == look


def test_a_plain_region_is_known_by_its_surroundings_its_colour_or_not_at_all() -> None:
    wall = SCENE.copy()
    wall[100:150, 150:210] = 90
    box = (150.0, 100.0, 210.0, 150.0)
    wide = (120.0, 80.0, 250.0, 190.0)
    shown = np.ascontiguousarray(wall[80:190, 120:250])
    assert check(wall, View(shown, (130, 110)), onto(wide, (130, 110)), box).look == "verified"
    flat = np.full_like(SCENE, 90)
    for shade, look in (
        (90, "verified"),
        (96, "verified"),
        (110, "unverified"),
        (0, "unverified"),
        (200, "unverified"),
    ):
        shown = np.full((110, 130, 3), shade, np.uint8)
        found = check(flat, View(shown, (130, 110)), onto(BOX, (130, 110)), BOX)
        assert (found.look, found.found) == (look, None)


@settings(max_examples=60, deadline=None)
@given(
    left=st.integers(0, 380),
    top=st.integers(0, 270),
    wide=st.integers(30, 100),
    high=st.integers(30, 90),
    times=st.floats(0.7, 3),
    seed=st.integers(0, 3),
)
def test_any_crop_at_any_zoom_is_verified_and_its_blackened_copy_never(
    left: int, top: int, wide: int, high: int, times: float, seed: int
) -> None:
    source = scene(seed=seed)
    box = (float(left), float(top), float(left + wide), float(top + high))
    picture = np.ascontiguousarray(enlarged(times)(crop(box, source)))
    size = (picture.shape[1], picture.shape[0])
    assert check(source, View(picture, size), onto(box, size), box).look == "verified"
    assert check(source, View(picture * 0, size), onto(box, size), box).look == "faked"


NUMBERS = st.floats(-50, 50) | st.sampled_from(
    [0.0, 1.0, -1.0, 1e-9, 1e-4, 1e4, -1e6, 1e300, float("inf"), float("nan")]
)


@settings(max_examples=150, deadline=None)
@given(
    numbers=st.lists(NUMBERS, min_size=6, max_size=6) | st.lists(NUMBERS, min_size=9, max_size=9),
    size=st.tuples(*[st.integers(1, 200)] * 2),
)
def test_no_claim_breaks_the_check_and_noise_earns_none(numbers: list[float], size: tuple[int, int]) -> None:
    claim = map_of(numbers)
    noise = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    if claim is not None:
        assert check(SCENE, View(noise, size), claim, BOX).look != "verified"


def test_a_copy_is_known_at_a_glance_and_one_pixel_more_or_less_is_no_copy() -> None:
    assert checked(crop()).why == "pixel by pixel"
    changed = crop()
    changed[0, 0] ^= 255
    assert checked(changed).why != "pixel by pixel"
    assert checked(crop(), onto(BOX, (130, 110)) @ moved(1, 0)).why != "pixel by pixel"
    assert checked(crop(), onto(BOX, (130, 110)) @ moved(0.5, 0)).why != "pixel by pixel"
    small = View(crop(), (65, 55))
    assert check(SCENE, small, onto(BOX, (130, 110)), BOX).why != "pixel by pixel", (
        "the policy sees it reduced"
    )


def plate(text: str, levels: int, side: int = 200) -> Pixels:
    """A plate of one colour with a text that is darker by some levels."""
    pixels = np.full((side, side, 3), 150, np.uint8)
    cv2.putText(
        pixels, text, (side // 6, side * 3 // 4), 0, side / 50, (150 - levels,) * 3, max(1, side // 15)
    )
    return pixels


@pytest.mark.parametrize("size", [(6, 6), (8, 8), (9, 6), (400, 2), (2, 400), (200, 4)])
def test_what_a_processor_enlarges_or_a_strip_stretches_is_illegible(size: tuple[int, int]) -> None:
    source = plate("83", 120)
    box = (0.0, 0.0, 200.0, 200.0)
    shown = np.asarray(cv2.resize(source, size, interpolation=cv2.INTER_AREA))
    for seen in ((56, 56), (392, 28), (28, 392)):
        assert check(source, View(shown, seen), onto(box, size), box).look == "illegible"


@pytest.mark.parametrize("levels", [4, 6, 12])
def test_a_blank_does_not_pass_for_a_region_with_something_faint_on_it(levels: int) -> None:
    source = plate("7", levels)
    box = (0.0, 0.0, 200.0, 200.0)
    blank = np.full((200, 200, 3), 150, np.uint8)
    assert check(source, View(blank, (200, 200)), onto(box, (200, 200)), box).look != "verified"
    assert check(source, View(source, (200, 200)), onto(box, (200, 200)), box).look == "verified"


@pytest.mark.parametrize("paint", [(0, 0, 0), (0, 160, 0), (150, 150, 150)])
def test_what_surrounds_a_plate_does_not_speak_for_it(paint: tuple[int, int, int]) -> None:
    source = SCENE.copy()
    source[100:220, 150:270] = plate("4", 6, 120)
    box = (150.0, 100.0, 270.0, 220.0)
    shown = np.ascontiguousarray(source[60:260, 100:320])
    shown[40:160, 50:170] = paint
    assert (
        check(source, View(shown, (220, 200)), onto((100, 60, 320, 260), (220, 200)), box).look != "verified"
    )
