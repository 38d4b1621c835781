"""Honestly enhanced crops are verified; pictures that show nothing of a region never are."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFilter

from tests.looks.build import BOX, SCENE, crop, scene
from vtune.data import lens
from vtune.data.lens_reader import target_of
from vtune.looks import bilevel, verify
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


def framed(picture: Pixels, rim: float) -> Pixels:
    """All black except for a rim, given as a share of the sides."""
    result = picture.copy()
    down, across = (round(rim * side) for side in picture.shape[:2])
    result[down:-down, across:-across] = 0
    return result


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
    "four pixels per side": small(4),
    "another picture": lambda picture: crop(of=scene(seed=9)),
    "a threshold that nothing passes": lambda picture: (picture > 254).astype(np.uint8) * 255,
    "the centre covered": lambda picture: framed(picture, 0.22),
    "noise of twice its contrast": levels(lambda v: v + np.random.default_rng(0).normal(0, 100, v.shape)),
    "all but a rim of a few pixels": lambda picture: framed(picture, 0.04),
    "pixels scattered by an eighth of the side": lambda picture: np.asarray(
        Image.fromarray(picture).effect_spread(16)
    ),
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
def test_an_honestly_enhanced_crop_is_verified(change: str) -> None:
    assert checked(HONEST[change](crop())).look == "verified"


@pytest.mark.parametrize("change", HOSTILE)
def test_a_picture_that_shows_nothing_of_a_region_is_never_verified(change: str) -> None:
    assert checked(HOSTILE[change](crop())).look != "verified"


@pytest.mark.parametrize("upright", [False, True])
@pytest.mark.parametrize("length", [60, 140, 300])
def test_a_half_black_strip_is_not_verified(length: int, upright: bool) -> None:
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
def test_a_rotated_picture_is_verified_if_its_map_is_rotated(degrees: int) -> None:
    picture = crop()
    height, width = picture.shape[:2]
    turn = np.vstack([cv2.getRotationMatrix2D((width / 2, height / 2), degrees, 1), [0, 0, 1]])
    turned = cv2.warpAffine(picture, turn[:2], (width, height))
    there = moved(0.5, 0.5) @ turn @ moved(-0.5, -0.5)
    claim = onto(BOX, (width, height)) @ inverse(there)
    middle = (160.0, 110.0, 210.0, 160.0)
    assert checked(turned, claim, middle).look == "verified"
    # Registration tolerates a small rotation.
    assert degrees < 15 or checked(turned, box=middle).look != "verified"


@pytest.mark.parametrize("off", [(3, 0), (0, -3), (2, 2)])
def test_a_claim_that_is_off_by_rounding_still_holds(off: tuple[int, int]) -> None:
    claim = onto(BOX, (130, 110)) @ moved(*off)
    assert checked(crop(), claim).look == "verified"


def test_the_wrong_place_is_not_verified() -> None:
    elsewhere = crop((300.0, 200.0, 430.0, 310.0))
    assert checked(elsewhere).look != "verified"


def test_a_tile_in_a_canvas_is_verified_where_its_map_places_it() -> None:
    canvas = np.zeros((400, 400, 3), np.uint8)
    canvas[50:160, 200:330] = crop()
    assert checked(canvas, onto(BOX, (130, 110)) @ moved(-200, -50)).look == "verified"
    assert checked(canvas, onto(BOX, (130, 110))).look != "verified"


def test_the_size_seen_by_the_policy_decides_not_the_returned_size() -> None:
    large = np.ascontiguousarray(enlarged(4)(crop()))
    size = (large.shape[1], large.shape[0])
    claim = onto(BOX, size)
    assert check(SCENE, View(large, size), claim, BOX).look == "verified"
    assert check(SCENE, View(large, (9, 9)), claim, BOX).look == "illegible"


def test_smooth_shading_is_recognised_by_exact_pixels_and_never_called_faked() -> None:
    shaded = np.empty((448, 448, 3), np.uint8)
    shaded[..., 0] = np.linspace(60, 190, 448)[None, :]
    shaded[..., 1] = 119
    shaded[..., 2] = np.linspace(60, 190, 448)[:, None]
    box = (252.0, 252.0, 308.0, 308.0)
    for change, look in ((lambda c: c, "verified"), (lambda c: c * 0, "unverified"), (grey, "unverified")):
        view = View(np.ascontiguousarray(change(crop(box, shaded))), (56, 56))
        assert check(shaded, view, onto(box, (56, 56)), box).look == look


def test_a_plain_region_is_recognised_by_surroundings_or_colour_or_not_at_all() -> None:
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


@settings(max_examples=30, deadline=None)
@given(
    left=st.integers(0, 380),
    top=st.integers(0, 270),
    wide=st.integers(30, 100),
    high=st.integers(30, 90),
    times=st.floats(0.7, 3),
    seed=st.integers(0, 3),
)
def test_any_crop_at_any_zoom_is_verified_and_never_its_blackened_copy(
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
def test_no_claim_crashes_the_check_and_noise_is_never_verified(
    numbers: list[float], size: tuple[int, int]
) -> None:
    claim = map_of(numbers)
    noise = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    if claim is not None:
        assert check(SCENE, View(noise, size), claim, BOX).look != "verified"


def test_an_exact_copy_is_recognised_and_one_pixel_off_is_not_a_copy() -> None:
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
    """A plate of one colour with a text that is darker by a few grey levels."""
    pixels = np.full((side, side, 3), 150, np.uint8)
    cv2.putText(
        pixels, text, (side // 6, side * 3 // 4), 0, side / 50, (150 - levels,) * 3, max(1, side // 15)
    )
    return pixels


@pytest.mark.parametrize("size", [(6, 6), (8, 8), (9, 6), (400, 2), (2, 400), (200, 4)])
def test_an_enlarged_or_stretched_picture_is_illegible(size: tuple[int, int]) -> None:
    source = plate("83", 120)
    box = (0.0, 0.0, 200.0, 200.0)
    shown = np.asarray(cv2.resize(source, size, interpolation=cv2.INTER_AREA))
    for seen in ((56, 56), (392, 28), (28, 392)):
        assert check(source, View(shown, seen), onto(box, size), box).look == "illegible"


@pytest.mark.parametrize("levels", [4, 6, 12])
def test_a_blank_picture_is_not_a_look_at_a_faint_region(levels: int) -> None:
    source = plate("7", levels)
    box = (0.0, 0.0, 200.0, 200.0)
    blank = np.full((200, 200, 3), 150, np.uint8)
    assert check(source, View(blank, (200, 200)), onto(box, (200, 200)), box).look != "verified"
    assert check(source, View(source, (200, 200)), onto(box, (200, 200)), box).look == "verified"


@pytest.mark.parametrize("level", [0.6, 1.5])
def test_a_faint_region_is_recognised_by_detail_not_colour_or_shading(level: float) -> None:
    grain = np.random.default_rng(0).normal(0, level, (200, 200, 1))
    source = (np.linspace(120, 124, 200)[None, :, None] + grain).round().astype(np.uint8).repeat(3, axis=2)
    box = (40.0, 40.0, 140.0, 140.0)
    part = np.ascontiguousarray(crop(box, source))
    blank = np.full_like(part, int(part.mean()))
    smooth = np.asarray(cv2.blur(part, (25, 25)))
    for shown, look in (
        (part, "verified"),
        (part + 3, "verified"),
        (blank, "unverified"),
        (smooth, "unverified"),
    ):
        assert check(source, View(shown, (100, 100)), onto(box, (100, 100)), box).look == look


@pytest.mark.parametrize("size", [65, 68])
def test_hatching_that_fades_on_a_coarser_grid_is_not_a_faint_region(size: int) -> None:
    y, x = np.mgrid[:72, :72]
    hatched = (abs(x - 40) < 12) & (abs(y - 45) < 15) & ((abs(x - 40) > 7) | (abs(y - 45) < 3))
    shade = 206 + np.where(hatched, np.where((x + y) % 2, 16, -16), 0)
    source = np.dstack([shade // 2, shade, shade]).astype(np.uint8)
    box = (0.0, 0.0, 72.0, 72.0)
    sharp = Image.fromarray(source).filter(ImageFilter.UnsharpMask(2, 150, 3))
    small = np.asarray(sharp.resize((size, size), Image.Resampling.LANCZOS))
    blank = np.full_like(small, 160)
    noise = np.random.default_rng(0).integers(120, 255, small.shape).astype(np.uint8)
    for shown, look in ((small, "verified"), (blank, "unverified"), (noise, "unverified")):
        found = check(source, View(shown, (84, 84)), onto(box, (size, size)), box)
        assert found.look == look, found.why


def hatched_plate() -> Pixels:
    """A plain plate of 72 pixels with a hatched glyph in the middle of the scene."""
    y, x = np.mgrid[:72, :72]
    glyph = (abs(x - 40) < 12) & (abs(y - 45) < 15) & ((abs(x - 40) > 7) | (abs(y - 45) < 3))
    shade = np.where(glyph, np.where((x + y) % 2, 110, -90), 0)
    whole = SCENE.copy()
    whole[100:172, 150:222] = np.clip(np.array([150, 90, 145]) + shade[..., None], 0, 255)
    return whole


def scatter(picture: Pixels) -> Pixels:
    plane = grey(picture)[..., 0].astype(np.float32)
    varied = cv2.blur(plane * plane, (3, 3)) - cv2.blur(plane, (3, 3)) ** 2
    return np.repeat(
        np.clip(2 * np.sqrt(np.maximum(varied, 0)), 0, 255).astype(np.uint8)[..., None], 3, axis=2
    )


def outlined(picture: Pixels) -> Pixels:
    return cv2.morphologyEx(grey(picture), cv2.MORPH_GRADIENT, np.ones((2, 2)))


@pytest.mark.parametrize("change", [scatter, outlined])
@pytest.mark.parametrize("seen", [(84, 84), (84, 112)])
def test_hatching_made_visible_before_shrinking_is_verified(
    change: Change, seen: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a grid of 64 instead of 72 pixels the region itself loses its hatching and cannot be recognised."""
    source, box, wide = hatched_plate(), (150.0, 100.0, 222.0, 172.0), (140.0, 85.0, 240.0, 185.0)
    part = crop(wide, source)
    shuffled_part, framed_part = part.copy(), change(part).copy()
    shuffled_part[15:87, 10:82] = shuffled(1)(part[15:87, 10:82])
    framed_part[18:84, 13:79] = framed_part[20, 20]
    shown = {"honest": change(part), "shuffled": change(shuffled_part), "framed": framed_part}
    looks = {name: check(source, View(one, seen), onto(wide, (100, 100)), box) for name, one in shown.items()}
    assert {name for name, found in looks.items() if found.look == "verified"} == {"honest"}, looks
    monkeypatch.setattr(verify, "FADED", 0.0)
    assert check(source, View(shown["honest"], seen), onto(wide, (100, 100)), box).look != "verified"


def test_thresholded_hatching_is_verified_with_a_subpixel_claim() -> None:
    """Enlarged sixfold, three pixels cut off each side: half a pixel, which averages hatching away."""
    plate = Image.fromarray(crop((150, 100, 222, 172), hatched_plate()))
    large = np.asarray(plate.resize((432, 432), Image.Resampling.BICUBIC))
    box = (150.5, 100.5, 221.5, 171.5)
    for picture, verified in ((large, True), (shuffled(6)(large), False), (np.full_like(large, 145), False)):
        shown = np.ascontiguousarray(otsu(picture)[3:-3, 3:-3])
        found = check(hatched_plate(), View(shown, (112, 112)), onto(box, (426, 426)), box)
        assert (found.look == "verified") is verified, found.why


def test_detail_enhanced_before_shrinking_does_not_count_as_lost() -> None:
    """Sharpened, placed next to its grey copy, and shrunk to 5/6 horizontally and 2/3 vertically."""

    def shown(picture: Pixels) -> View:
        sharp = np.asarray(Image.fromarray(picture).filter(ImageFilter.SHARPEN))
        return View(np.hstack([sharp, grey(sharp)]), (140, 56))

    looks: dict[str, list[str]] = {"whole": [], "covered": [], "moved": []}
    for puzzle in itertools.islice(lens.puzzles(3, seed=4, split="heldout"), 200):
        target = target_of(puzzle)
        assert target is not None
        x0, y0, x1, y1 = target.box
        part = puzzle.pixels[max(0, y0 - 6) : y1 + 6, max(0, x0 - 6) : x1 + 6]
        if part.shape[:2] != (84, 84):
            continue
        x, y = target.spots[0][0] - x0 + 6, target.spots[0][1] - y0 + 6
        covered = part.copy()
        covered[y + 4 : y + 20, x : x + 20] = part[8, 8]
        views = {"whole": part, "covered": covered, "moved": np.roll(part, (20, 14), (0, 1))}
        box = (float(x0), float(y0), float(x1), float(y1))
        for name, picture in views.items():
            looks[name].append(check(puzzle.pixels, shown(picture), moved(x0 - 6, y0 - 6), box).look)
    assert len(looks["whole"]) >= 30
    share = {name: found.count("verified") / len(found) for name, found in looks.items()}
    assert share["whole"] > 0.95, share  # 0.87 if only the plain picture decides what is lost
    assert share["covered"] < 0.1, share  # all covered except the top and the foot of a digit
    assert share["moved"] == 0, share


def test_enlarging_does_not_restore_discarded_pixels() -> None:
    small = np.ascontiguousarray(enlarged(0.5, cv2.INTER_AREA)(crop()))
    size = (small.shape[1], small.shape[0])
    found = check(SCENE, View(small, (4 * size[0], 4 * size[1])), onto(BOX, size), BOX)
    assert found.side == pytest.approx((size[0] * size[1]) ** 0.5, rel=0.02)


@pytest.mark.parametrize("paint", [(0, 0, 0), (0, 160, 0), (150, 150, 150)])
def test_matching_surroundings_do_not_verify_a_covered_plate(paint: tuple[int, int, int]) -> None:
    source = SCENE.copy()
    source[100:220, 150:270] = plate("4", 6, 120)
    box = (150.0, 100.0, 270.0, 220.0)
    shown = np.ascontiguousarray(source[60:260, 100:320])
    shown[40:160, 50:170] = paint
    assert (
        check(source, View(shown, (220, 200)), onto((100, 60, 320, 260), (220, 200)), box).look != "verified"
    )


def fell_short(picture: Pixels, monkeypatch: pytest.MonkeyPatch, bound: str) -> tuple[str, str]:
    """The result with one bound on the agreement, and without it."""
    bounded = checked(picture).look
    monkeypatch.setattr(verify, "BOUNDS", replace(verify.BOUNDS, **{bound: 0.0}))
    return bounded, checked(picture).look


def test_the_worst_piece_reveals_a_covered_centre(monkeypatch: pytest.MonkeyPatch) -> None:
    picture = framed((crop() * 0.6 + 60).astype(np.uint8), 0.3)
    assert fell_short(picture, monkeypatch, "worst") == ("unverified", "verified")


@pytest.mark.parametrize(("gain", "base"), [(0.1, 3), (0.15, 8)])
def test_a_dark_crop_is_as_visible_as_its_source(gain: float, base: int) -> None:
    dark = np.clip(base + (SCENE.astype(np.float32) - 60) * gain, 0, 255).astype(np.uint8)
    x0, y0, x1, y1 = map(int, BOX)
    for shown in (dark[y0:y1, x0:x1], cv2.cvtColor(cv2.cvtColor(dark[y0:y1, x0:x1], 7), 8)):
        twice = cv2.resize(shown, None, fx=2, fy=2, interpolation=cv2.INTER_CUBIC)
        size = (twice.shape[1], twice.shape[0])
        found = check(dark, View(twice, size), onto(BOX, size), BOX)
        assert found.look == "verified", found.why


def beneath(picture: Pixels, over: Pixels, part: int) -> Pixels:
    """The darkened brightness of a picture in blue, with another picture in red and green."""
    grey = cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY) // part
    return np.dstack([over[..., 0], over[..., 1], grey])


def test_content_in_a_faint_channel_is_not_seen_but_in_a_full_channel_it_is() -> None:
    picture = crop()
    other = np.ascontiguousarray(cv2.resize(SCENE, (picture.shape[1], picture.shape[0]))[:, ::-1])
    noise = np.random.default_rng(0).integers(0, 255, picture.shape).astype(np.uint8)
    yellow, black = np.full_like(picture, 255), np.zeros_like(picture)
    for over, part in ((other, 16), (noise, 8), (yellow, 8), (yellow, 3), (other, 1)):
        assert checked(beneath(picture, over, part)).look != "verified"
    assert "other content lies over it" in checked(beneath(picture, other, 1)).why
    assert checked(beneath(picture, black, 1)).look == "verified"


def muxed(*channels: Pixels) -> Pixels:
    """A picture whose channels hold the brightness of different pictures."""
    return np.dstack([grey(channel)[..., 0] for channel in channels])


def test_a_channel_with_other_content_is_distinguished_from_one_that_follows_the_region() -> None:
    picture = crop()
    whole, third = (
        np.ascontiguousarray(cv2.resize(one, (picture.shape[1], picture.shape[0])))
        for one in (SCENE[:, ::-1], crop((300.0, 200.0, 430.0, 310.0)))
    )
    for shown in (
        muxed(picture, whole, whole),
        muxed(whole, picture, whole),
        muxed(picture, picture, whole),
        muxed(picture, whole, third),
        muxed(levels(lambda v: 2 * v - 128)(picture), levels(lambda v: v / 2 + 64)(whole), third // 2),
    ):
        assert "a channel shows other content" in checked(shown).why
    black, edges = np.zeros_like(picture), np.repeat(cv2.Canny(picture, 100, 200)[..., None], 3, axis=2)
    sharp = cv2.applyColorMap(enlarged(4)(clahe(picture))[..., 0], cv2.COLORMAP_JET)
    for shown in (
        muxed(picture, black, black),
        muxed(picture, picture, edges),
        levels(lambda v: v * (1, 0.35, 0.2))(picture),
        picture[..., [1, 2, 0]],
        cv2.cvtColor(picture, cv2.COLOR_RGB2HSV),
        cv2.cvtColor(picture, cv2.COLOR_RGB2LAB),
        np.asarray(sharp, np.uint8),
    ):
        assert checked(shown).look == "verified"


def test_a_channel_that_shows_another_place_is_not_a_look(coco_mini: Path) -> None:
    looks: dict[str, list[str]] = {"honest": [], "hostile": []}
    for path in sorted((coco_mini / "images").glob("*.jpg"))[:12]:
        source = np.asarray(Image.open(path).convert("RGB"))
        high, wide = source.shape[0] // 3, source.shape[1] // 3
        box = (float(wide), float(high), 2.0 * wide, 2.0 * high)
        picture, other = crop(box, source), np.asarray(cv2.resize(source, (wide, high)), np.uint8)
        noise = np.random.default_rng(0).integers(0, 256, picture.shape, np.uint8)
        claim = onto(box, (wide, high))
        for name, shown in (
            ("honest", cv2.applyColorMap(clahe(picture)[..., 0], cv2.COLORMAP_JET)),
            ("honest", picture[..., ::-1]),
            ("hostile", muxed(picture, other, other)),
            ("hostile", muxed(picture, noise, noise)),
            ("hostile", muxed(other, picture, np.ascontiguousarray(other[:, ::-1]))),
        ):
            view = View(np.ascontiguousarray(shown), (wide, high))
            looks[name].append(check(source, view, claim, box).look)
    assert set(looks["honest"]) == {"verified"}
    assert len(looks["hostile"]) == 36
    assert "verified" not in looks["hostile"]


def scattered(picture: Pixels, reach: int) -> Pixels:
    """Take each pixel from a random place at most `reach` pixels away in x and y."""
    chance = np.random.default_rng(0)
    down, across = np.indices(picture.shape[:2]) + chance.integers(-reach, reach + 1, (2, *picture.shape[:2]))
    return picture[np.clip(down, 0, len(picture) - 1), np.clip(across, 0, picture.shape[1] - 1)]


@pytest.mark.parametrize(
    "change",
    [
        levels(lambda v: v + np.random.default_rng(0).normal(0, 80, v.shape)),
        lambda picture: scattered(picture, 4),
    ],
)
def test_the_finest_band_detects_noise_and_scattered_pixels(
    change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fell_short(change(crop()), monkeypatch, "fine") == ("unverified", "verified")


FINELY = (130.0, 80.0, 240.0, 180.0)
"""A region whose thresholded form agrees less with its grey levels than is required of any picture."""


@pytest.mark.parametrize(
    "change",
    [
        otsu,
        lambda picture: 255 - otsu(picture),
    ],
)
def test_a_thresholded_crop_is_compared_with_the_thresholded_region(
    change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = np.ascontiguousarray(change(crop(FINELY)))
    claim = onto(FINELY, (picture.shape[1], picture.shape[0]))
    assert checked(picture, claim, FINELY).why.endswith("thresholded")
    monkeypatch.setattr(bilevel, "SEPARABLE", 1.01)
    assert checked(picture, claim, FINELY).look == "unverified"


@pytest.mark.parametrize("box", [BOX, FINELY])
@pytest.mark.parametrize(
    "change",
    [
        lambda picture: otsu(HOSTILE["noise of twice its contrast"](picture)),
        lambda picture: otsu(scattered(picture, 7)),
        lambda picture: scattered(otsu(picture), 7),
        lambda picture: framed(otsu(picture), 0.25),
    ],
)
def test_two_grey_levels_are_not_verified_where_more_levels_would_not_be(
    change: Change, box: tuple[float, float, float, float]
) -> None:
    picture = np.ascontiguousarray(change(crop(box)))
    assert checked(picture, onto(box, (picture.shape[1], picture.shape[0])), box).look != "verified"


@pytest.mark.parametrize("centre", [4.8, 6.0])
def test_a_crop_sharpened_to_saturation_is_not_taken_as_blurred(centre: float) -> None:
    kernel = np.array([[0, -1, 0], [-1, centre, -1], [0, -1, 0]])
    for puzzle in itertools.islice(lens.puzzles(1, seed=3, split="heldout"), 10):
        assert puzzle.target is not None
        x0, y0, x1, y1 = puzzle.target.box
        sharpened = np.asarray(cv2.filter2D(puzzle.pixels[y0 - 8 : y1 + 8, x0 - 8 : x1 + 8], -1, kernel))
        view = View(sharpened, (x1 - x0 + 16, y1 - y0 + 16))
        box = (float(x0), float(y0), float(x1), float(y1))
        assert check(puzzle.pixels, view, moved(x0 - 8, y0 - 8), box).look == "verified"


def test_a_hatched_glyph_without_coarse_detail_is_not_called_blurred() -> None:
    """Sharpened, then shrunk to 14/17 by the policy's processor: almost only moire is left."""
    for puzzle in itertools.islice(lens.puzzles(2, seed=3, split="heldout"), 40):
        assert puzzle.target is not None
        x0, y0, x1, y1 = puzzle.target.box
        wide = puzzle.pixels[y0 - 6 : y0 + 62, x0 - 6 : x0 + 62]
        if min(x0, y0) < 6 or wide.shape[:2] != (68, 68):
            continue
        sharpened = cv2.addWeighted(wide, 1.8, cv2.GaussianBlur(wide, (0, 0), 2), -0.8, 0)
        box = (float(x0), float(y0), float(x1), float(y1))
        found = check(puzzle.pixels, View(sharpened, (56, 56)), moved(x0 - 6, y0 - 6), box)
        assert found.look == "verified", found.why


def drawn() -> Pixels:
    """A box with lines on a smooth ground: a few busy spots, most of them flat."""
    y, x = np.mgrid[:110, :130]
    plane = (120 + 0.3 * x + 0.2 * y).astype(np.uint8)
    for centre, radius in (((40, 40), 25), ((90, 70), 30), ((70, 20), 12)):
        cv2.circle(plane, centre, radius, 30, 2, cv2.LINE_AA)
    cv2.putText(plane, "27", (30, 95), cv2.FONT_HERSHEY_SIMPLEX, 1.2, 240, 2, cv2.LINE_AA)
    cv2.line(plane, (5, 105), (125, 8), 220, 2, cv2.LINE_AA)
    return np.repeat(plane[..., None], 3, axis=2)


def lively_noise(picture: Pixels) -> Pixels:
    """Noise whose local strength follows the picture's local activity."""
    plane = picture[..., 0].astype(np.float32)
    strong = np.sqrt(np.maximum(cv2.blur(plane * plane, (3, 3)) - cv2.blur(plane, (3, 3)) ** 2, 0))
    signs = np.random.default_rng(0).choice([-1, 1], plane.shape)
    return np.repeat(np.clip(128 + 1.5 * signs * strong, 0, 255).astype(np.uint8)[..., None], 3, axis=2)


@pytest.mark.parametrize("filtered", [ImageFilter.EMBOSS, ImageFilter.CONTOUR, ImageFilter.FIND_EDGES])
def test_line_directions_survive_filtering(filtered: type[ImageFilter.Filter]) -> None:
    found = placed(np.asarray(Image.fromarray(drawn()).filter(filtered())))
    assert found.look == "verified", found.why


def test_equally_strong_noise_is_distinguished_from_lines_by_direction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    noise, half = lively_noise(drawn()), drawn()
    half[55:] = noise[55:]
    assert placed(noise).why == "as lively in each spot, but its lines run otherwise"
    assert placed(half).look == "unverified"
    monkeypatch.setattr(verify, "BOUNDS", replace(verify.BOUNDS, direction=-1.0))
    assert placed(noise).look == "verified"


def placed(picture: Pixels) -> Checked:
    """Check a picture that claims to show `drawn`, which is in the scene."""
    whole = SCENE.copy()
    whole[80:190, 120:250] = drawn()
    return check(whole, View(np.ascontiguousarray(picture), (130, 110)), onto(BOX, (130, 110)), BOX)


@pytest.mark.parametrize("seen", [(56, 56), (84, 84), (84, 112)])
@pytest.mark.parametrize("size", [21, 31])
def test_a_hatched_glyph_filled_to_a_block_is_not_verified(seen: tuple[int, int], size: int) -> None:
    source, wide = hatched_plate(), (140.0, 85.0, 240.0, 185.0)
    kernel = np.ones((size, size), np.uint8)
    closed = np.ascontiguousarray(cv2.morphologyEx(scatter(crop(wide, source)), cv2.MORPH_CLOSE, kernel))
    found = verify.check(source, View(closed, seen), onto(wide, (100, 100)), (150.0, 100.0, 222.0, 172.0))
    assert found.look != "verified"
