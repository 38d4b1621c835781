import base64
import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import ExifTags, Image, ImageDraw, ImageEnhance, ImageFilter, ImageOps

from tests.looks.build import SCENE
from vtune.errors import DataError
from vtune.judge.pictures import data_url, picture_size, same_picture, shows_unchanged
from vtune.schema.message import Picture


def encode(image: Image.Image, kind: str = "PNG", **options: int) -> Picture:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return Picture(out.getvalue())


@pytest.fixture
def photo() -> Image.Image:
    """Smooth gradients with a few hard edges."""
    image = Image.radial_gradient("L").resize((203, 101)).convert("RGB")
    draw = ImageDraw.Draw(image)
    draw.rectangle((30, 30, 80, 60), fill="orange")
    draw.ellipse((120, 20, 180, 80), fill="navy")
    return image


@pytest.mark.parametrize("quality", [50, 75, 95])
def test_a_re_encoded_copy_is_the_same_picture(photo: Image.Image, quality: int) -> None:
    assert same_picture(encode(photo), encode(photo, "JPEG", quality=quality))
    assert same_picture(encode(photo), encode(photo.convert("RGBA")))


def test_a_changed_picture_is_not_the_same(photo: Image.Image) -> None:
    lined = photo.copy()
    ImageDraw.Draw(lined).line((10, 90, 190, 90), fill="red", width=1)
    brighter = photo.point(lambda level: min(255, level + 20))
    for other in (
        lined,
        brighter,
        photo.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
        photo.resize((202, 101)),
    ):
        assert not same_picture(encode(photo), encode(other))


def test_a_sharpened_picture_differs_and_a_re_encoded_one_does_not() -> None:
    scene = Image.fromarray(SCENE)
    whole = (0, 0, *scene.size)
    for quality in (50, 75, 95):
        assert shows_unchanged(encode(scene, "JPEG", quality=quality), encode(scene), whole)
    for sharper in (ImageEnhance.Sharpness(scene).enhance(2), scene.filter(ImageFilter.SHARPEN)):
        assert not shows_unchanged(encode(sharper), encode(scene), whole)
    board = np.indices(SCENE.shape[:2]).sum(0)[..., None] % 2 * 4
    noise = np.random.default_rng(0).normal(0, 3, SCENE.shape)
    for added in (board, noise):
        changed = (SCENE + added).clip(0, 255).astype(np.uint8)
        assert shows_unchanged(encode(Image.fromarray(changed)), encode(scene), whole)


BOX = (20, 10, 160, 90)


@pytest.mark.parametrize("size", [(140, 80), (280, 160), (100, 60), (97, 91)])
@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_a_crop_shows_its_region_at_any_size(photo: Image.Image, size: tuple[int, int], kind: str) -> None:
    crop = encode(photo.crop(BOX).resize(size), kind)
    assert shows_unchanged(crop, encode(photo), BOX)
    assert not shows_unchanged(crop, encode(photo), (60, 10, 200, 90))
    assert not shows_unchanged(crop, encode(photo), (0, 0, *photo.size))


@pytest.mark.parametrize("colour", ["red", "yellow", "lime", "blue", "black", "white"])
def test_a_two_pixel_frame_of_any_colour_is_a_change(photo: Image.Image, colour: str) -> None:
    marked = photo.copy()
    ImageDraw.Draw(marked).rectangle((60, 40, 140, 80), outline=colour, width=2)
    assert not shows_unchanged(encode(marked), encode(photo), (0, 0, *photo.size))
    twice = marked.resize((406, 202))
    assert not shows_unchanged(encode(twice), encode(photo), (0, 0, *photo.size))


def test_a_region_outside_the_picture_is_never_shown(photo: Image.Image) -> None:
    assert not shows_unchanged(encode(photo), encode(photo), (500, 500, 600, 600))
    assert shows_unchanged(encode(photo), encode(photo), (-9, -9, 900, 900))


def test_a_flat_picture_is_compared_by_its_colour() -> None:
    grey, red = (encode(Image.new("RGB", (20, 20), colour)) for colour in ("#4c4c4c", "red"))
    assert not same_picture(grey, red)


@given(width=st.integers(1, 400), height=st.integers(1, 400))
@settings(max_examples=40, deadline=None)
def test_every_picture_is_sent_in_a_size_that_judges_accept(width: int, height: int) -> None:
    sent = decoded(data_url(encode(Image.new("RGB", (width, height), "red"))))
    assert min(sent.size) >= 28
    assert max(sent.size) <= 100 * min(sent.size)
    assert (255, 0, 0) in {colour for _, colour in sent.getcolors() or ()}


@pytest.mark.parametrize(
    ("size", "sent"),
    [((1, 300), (30, 3000)), ((3000, 2), (3000, 30)), ((5, 7), (30, 42)), ((28, 28), (28, 28))],
)
def test_narrow_pictures_get_margins_and_tiny_ones_are_enlarged(
    size: tuple[int, int], sent: tuple[int, int]
) -> None:
    assert decoded(data_url(encode(Image.new("L", size)))).size == sent


def decoded(url: str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(url.split(",")[1])))


def test_a_picture_rotated_by_exif_is_sent_as_the_policy_sees_it(photo: Image.Image) -> None:
    exif, out = Image.Exif(), io.BytesIO()
    exif[ExifTags.Base.Orientation] = 6
    photo.save(out, "JPEG", exif=exif)
    sent = base64.b64decode(data_url(Picture(origin="input", data=out.getvalue())).partition(",")[2])
    with Image.open(io.BytesIO(sent)) as shown, Image.open(io.BytesIO(out.getvalue())) as stored:
        assert ImageOps.exif_transpose(shown).size == photo.size
        assert np.array_equal(np.asarray(shown.convert("RGB")), np.asarray(stored))


def test_a_picture_may_be_a_path(photo: Image.Image, tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    photo.save(path)
    picture = Picture(path=str(path))
    assert picture_size(picture) == (203, 101)
    assert data_url(picture).startswith("data:image/jpeg;base64,")


@pytest.mark.parametrize("picture", [Picture(), Picture(path="/nowhere/at/all.png"), Picture(b"no picture")])
def test_an_unreadable_picture_file_is_a_data_error(picture: Picture) -> None:
    with pytest.raises(DataError):
        picture_size(picture)
