"""Every way of cropping that models use, with the box that it must report.

The input is `image_0.png`, 400 x 300, and `image_1.jpg`, 200 x 100, turned by its EXIF orientation.
"""

import math

import numpy as np
import pytest

from tests.sandbox.conftest import Box, decoded, encoded, picture
from vtune.sandbox import Execution

WHOLE = (0, 0, 400, 300)

WAYS: dict[str, tuple[str, tuple[float, float, float, float]]] = {
    "pil crop": ("image.crop((10, 20, 110, 90)).save('c.png')", (10, 20, 110, 90)),
    "pil crop of a float box": ("image.crop((10.4, 19.6, 110.2, 90)).save('c.png')", (10, 20, 110, 90)),
    "pil open and crop": ("Image.open(image_path).crop((10, 20, 110, 90)).save('c.png')", (10, 20, 110, 90)),
    "pil crop of a crop": (
        "image.crop((100, 50, 300, 250)).crop((10, 20, 60, 80)).save('c.png')",
        (110, 70, 160, 130),
    ),
    "pil crop enlarged": (
        "image.crop((10, 20, 110, 90)).resize((300, 210), Image.LANCZOS).save('c.jpg')",
        (10, 20, 110, 90),
    ),
    "pil resize then crop": (
        "image.resize((800, 600)).crop((100, 200, 300, 400)).save('c.png')",
        (50, 100, 150, 200),
    ),
    "pil resize of a box": (
        "image.resize((100, 100), box=(40, 60, 90, 110)).save('c.png')",
        (40, 60, 90, 110),
    ),
    "pil thumbnail then crop": (
        "small = image.copy()\nsmall.thumbnail((200, 150))\nsmall.crop((10, 20, 60, 80)).save('c.png')",
        (20, 40, 120, 160),
    ),
    "pil reduce": ("image.reduce(2).crop((10, 20, 60, 80)).save('c.png')", (20, 40, 120, 160)),
    "pil transform extent": (
        "image.transform((80, 60), Image.Transform.EXTENT, (40, 60, 80, 90)).save('c.png')",
        (40, 60, 80, 90),
    ),
    "pil flip then crop": (
        "image.transpose(Image.FLIP_LEFT_RIGHT).crop((10, 20, 60, 80)).save('c.png')",
        (340, 20, 390, 80),
    ),
    "pil quarter turn then crop": (
        "image.rotate(90, expand=True).crop((10, 20, 60, 80)).save('c.png')",
        (320, 10, 380, 60),
    ),
    "pil half turn of a crop": ("image.crop((10, 20, 60, 80)).rotate(180).save('c.png')", (10, 20, 60, 80)),
    "pil slightly turned crop": (
        "image.crop((10, 20, 60, 80)).rotate(7, expand=True).save('c.png')",
        (10, 20, 60, 80),
    ),
    "pil contrast of a crop": (
        "from PIL import ImageEnhance\n"
        "ImageEnhance.Contrast(image.crop((10, 20, 60, 80))).enhance(3).save('c.png')",
        (10, 20, 60, 80),
    ),
    "pil sharpened grey crop": (
        "from PIL import ImageFilter\n"
        "image.crop((10, 20, 60, 80)).convert('L').filter(ImageFilter.SHARPEN).save('c.png')",
        (10, 20, 60, 80),
    ),
    "pil crop with a border": (
        "from PIL import ImageOps\nImageOps.expand(image.crop((10, 20, 60, 80)), border=9).save('c.png')",
        (10, 20, 60, 80),
    ),
    "pil crop padded to a size": (
        "from PIL import ImageOps\nImageOps.pad(image.crop((10, 20, 60, 80)), (200, 200)).save('c.png')",
        (10, 20, 60, 80),
    ),
    "pil crop pasted on a canvas": (
        "canvas = Image.new('RGB', (90, 90), 'white')\n"
        "canvas.paste(image.crop((10, 20, 60, 80)), (5, 5))\ncanvas.save('c.png')",
        (10, 20, 60, 80),
    ),
    "pil crop over the edge": ("image.crop((350, -40, 500, 60)).save('c.png')", (350, 0, 400, 60)),
    "pil crop shown": ("image.crop((10, 20, 60, 80)).show()", (10, 20, 60, 80)),
    "pil drawing on the picture": (
        "from PIL import ImageDraw\n"
        "ImageDraw.Draw(image).rectangle((10, 20, 60, 80), outline='red')\nimage.save('c.png')",
        WHOLE,
    ),
    "numpy slice": ("Image.fromarray(np.array(image)[20:80, 10:60]).save('c.png')", (10, 20, 60, 80)),
    "numpy asarray slice": (
        "Image.fromarray(np.asarray(image)[20:80, 10:60]).save('c.png')",
        (10, 20, 60, 80),
    ),
    "numpy slice in two steps": (
        "a = np.array(image)[20:200]\nImage.fromarray(a[:, 10:60][0:60].copy()).save('c.png')",
        (10, 20, 60, 80),
    ),
    "numpy every second pixel": (
        "Image.fromarray(np.array(image)[20:80:2, 10:60:2]).save('c.png')",
        (10, 20, 60, 80),
    ),
    "numpy upside down": (
        "Image.fromarray(np.array(image)[::-1][20:80, 10:60]).save('c.png')",
        (10, 220, 60, 280),
    ),
    "numpy flipped and turned": (
        "a = np.rot90(np.flip(np.array(image), axis=1))\n"
        "Image.fromarray(a[20:80, 10:60].copy()).save('c.png')",
        (20, 10, 80, 60),
    ),
    "numpy transposed": (
        "Image.fromarray(np.array(image).transpose(1, 0, 2)[20:80, 10:60].copy()).save('c.png')",
        (20, 10, 80, 60),
    ),
    "numpy one channel": (
        "Image.fromarray(np.array(image)[20:80, 10:60, 1]).save('c.png')",
        (10, 20, 60, 80),
    ),
    "numpy arithmetic": (
        "a = np.clip(np.array(image).astype(float) * 1.4 - 20, 0, 255)[20:80, 10:60]\n"
        "Image.fromarray(a.astype(np.uint8)).save('c.png')",
        (10, 20, 60, 80),
    ),
    "numpy slice before the edge": (
        "y0, x0 = -30, -20\nImage.fromarray(np.array(image)[y0:80, x0:60]).save('c.png')",
        (0, 0, 60, 80),
    ),
    "numpy slice in a function of an earlier call": (
        "def cut(a, x0, y0, x1, y1):\n    return a[y0:y1, x0:x1]\n"
        "Image.fromarray(cut(np.array(image), 10, 20, 60, 80)).save('c.png')",
        (10, 20, 60, 80),
    ),
    "cv2 slice": ("cv2.imwrite('c.png', cv2.imread(image_path)[20:80, 10:60])", (10, 20, 60, 80)),
    "cv2 under another path": (
        "cv2.imwrite('/tmp/c.png', cv2.imread('/mnt/data/image_0.png')[20:80, 10:60])",
        (10, 20, 60, 80),
    ),
    "cv2 slice enlarged": (
        "c = cv2.imread(image_path)[20:80, 10:60]\n"
        "cv2.imwrite('c.jpg', cv2.resize(c, None, fx=2, fy=2, interpolation=cv2.INTER_LINEAR))",
        (10, 20, 60, 80),
    ),
    "cv2 resize then slice": (
        "big = cv2.resize(cv2.imread(image_path), (800, 600))\ncv2.imwrite('c.png', big[40:160, 20:120])",
        (10, 20, 60, 80),
    ),
    "cv2 reduced reading": (
        "half = cv2.imread(image_path, cv2.IMREAD_REDUCED_COLOR_2)\ncv2.imwrite('c.png', half[10:40, 5:30])",
        (10, 20, 60, 80),
    ),
    "cv2 grey and threshold": (
        "g = cv2.cvtColor(cv2.imread(image_path)[20:80, 10:60], cv2.COLOR_BGR2GRAY)\n"
        "_, t = cv2.threshold(g, 127, 255, cv2.THRESH_BINARY)\ncv2.imwrite('c.png', t)",
        (10, 20, 60, 80),
    ),
    "cv2 to pil": (
        "a = cv2.cvtColor(cv2.imread(image_path), cv2.COLOR_BGR2RGB)\n"
        "Image.fromarray(a).crop((10, 20, 60, 80)).save('c.png')",
        (10, 20, 60, 80),
    ),
    "cv2 flip": (
        "cv2.imwrite('c.png', cv2.flip(cv2.imread(image_path), 1)[20:80, 10:60])",
        (340, 20, 390, 80),
    ),
    "cv2 rotate": (
        "a = cv2.rotate(cv2.imread(image_path), cv2.ROTATE_90_CLOCKWISE)\n"
        "cv2.imwrite('c.png', a[20:80, 10:60])",
        (20, 240, 80, 290),
    ),
    "cv2 border": (
        "c = cv2.imread(image_path)[20:80, 10:60]\n"
        "cv2.imwrite('c.png', cv2.copyMakeBorder(c, 7, 7, 7, 7, cv2.BORDER_CONSTANT))",
        (10, 20, 60, 80),
    ),
    "cv2 warp": (
        "M = np.float32([[2, 0, -20], [0, 2, -40]])\n"
        "cv2.imwrite('c.png', cv2.warpAffine(cv2.imread(image_path), M, (100, 120)))",
        (10, 20, 60, 80),
    ),
    "cv2 channels split and merged": (
        "b, g, r = cv2.split(cv2.imread(image_path)[20:80, 10:60])\n"
        "cv2.imwrite('c.png', cv2.merge([r, g, b]))",
        (10, 20, 60, 80),
    ),
    "cv2 shown": ("cv2.imshow('crop', cv2.imread(image_path)[20:80, 10:60])", (10, 20, 60, 80)),
    "cv2 rectangle on the picture": (
        "a = cv2.imread(image_path)\n"
        "cv2.rectangle(a, (10, 20), (60, 80), (0, 0, 255), 2)\ncv2.imwrite('c.png', a)",
        WHOLE,
    ),
    "saved crop read again": (
        "image.crop((100, 50, 300, 250)).save('d.bmp')\n"
        "cv2.imwrite('c.png', cv2.imread('d.bmp')[20:80, 10:60])",
        (110, 70, 160, 130),
    ),
    "whole picture saved": ("image.save('c.png')", WHOLE),
    "whole picture made small": ("image.resize((200, 150)).save('c.png')", WHOLE),
    "blind: copied file": ("import shutil\nshutil.copy(image_path, 'c.png')", WHOLE),
    "blind: pixels through a list": (
        "c = image.crop((10, 20, 60, 80))\nd = Image.new('RGB', c.size)\n"
        "d.putdata(list(c.getdata()))\nd.save('c.png')",
        (10, 20, 60, 80),
    ),
    "blind: encoded by hand": (
        "ok, data = cv2.imencode('.jpg', cv2.imread(image_path)[20:80, 10:60])\n"
        "open('c.jpg', 'wb').write(data)",
        (10, 20, 60, 80),
    ),
    "blind: enlarged pixel by pixel": (
        "a = np.array(image)[20:80, 10:60]\nb = np.array(a.tolist(), np.uint8).repeat(2, 0).repeat(2, 1)\n"
        "Image.fromarray(b).save('c.png')",
        (10, 20, 60, 80),
    ),
    "blind: brighter": (
        "a = np.array(image)[20:80, 10:60].tolist()\n"
        "Image.fromarray((np.array(a) * 0.7 + 30).astype(np.uint8)).save('c.png')",
        (10, 20, 60, 80),
    ),
}


@pytest.fixture(scope="module")
def executions(box: Box) -> dict[str, Execution]:
    return {name: box.one(code) for name, (code, _) in WAYS.items()}


@pytest.mark.parametrize("name", WAYS)
def test_the_box_of_the_shown_crop_is_exact(executions: dict[str, Execution], name: str) -> None:
    run = executions[name]
    assert run.status == "ok", run.error
    last = len(run.images) - 1
    shown = [crop for crop in run.crops if crop.shown == last]
    assert [(crop.image, crop.bbox) for crop in shown] == [(0, WAYS[name][1])]


def test_each_picture_that_shows_an_input_has_one_crop(executions: dict[str, Execution]) -> None:
    for name, run in executions.items():
        shown = [crop.shown for crop in run.crops if crop.shown is not None]
        assert shown == list(range(len(run.images))), name


def test_a_crop_that_is_not_shown_is_reported_as_such(box: Box) -> None:
    run = box.one(
        "a = image.crop((1, 2, 30, 40))\nb = np.array(image)[5:9, 6:8]\n"
        "image.crop((3, 3, 9, 9)).save('c.png')"
    )
    assert [(crop.bbox, crop.shown) for crop in run.crops] == [
        ((3, 3, 9, 9), 0),
        ((1, 2, 30, 40), None),
        ((6, 5, 8, 9), None),
    ]


def test_a_crop_of_an_earlier_call_is_followed(box: Box) -> None:
    codes = [
        "c = image.crop((100, 50, 300, 250))\nc.save('c.png')",
        "Image.open('c.png').crop((10, 20, 60, 80)).save('d.png')",
    ]
    first, second = box.run(*codes)
    assert [crop.bbox for crop in first.crops] == [(100, 50, 300, 250)]
    assert [(crop.bbox, crop.shown) for crop in second.crops] == [((110, 70, 160, 130), 0)]


def test_crops_name_the_input_they_come_from(box: Box) -> None:
    images = [encoded(picture()), encoded(picture(200, 100, seed=1))]
    run = box.one(
        "images[1].crop((1, 2, 30, 40)).save('a.png')\nimage.crop((5, 6, 70, 80)).save('b.png')", images
    )
    assert [(crop.image, crop.bbox) for crop in run.crops] == [(1, (1, 2, 30, 40)), (0, (5, 6, 70, 80))]


def test_boxes_are_in_stored_pixels_even_where_opencv_turns_the_picture(box: Box) -> None:
    exif = b"Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
    image = encoded(picture(200, 100), "JPEG", quality=95, exif=exif)
    run = box.one(
        "a = cv2.imread(image_path)\nprint(a.shape)\ncv2.imwrite('c.png', a[20:80, 10:60])", [image]
    )
    assert run.output == "(200, 100, 3)"
    assert [crop.bbox for crop in run.crops] == [(20, 40, 80, 90)]


@pytest.mark.parametrize(
    "code",
    [
        "Image.new('RGB', (50, 50), 'red').save('c.png')",
        "Image.fromarray(np.random.randint(0, 255, (50, 50, 3), np.uint8)).save('c.png')",
        "mask = np.zeros_like(np.array(image))\ncv2.circle(mask, (50, 50), 20, (255, 255, 255), -1)\n"
        "cv2.imwrite('c.png', mask)",
    ],
    ids=["one colour", "noise", "mask"],
)
def test_a_picture_that_shows_no_region_has_no_shown_crop(box: Box, code: str) -> None:
    run = box.one(code)
    assert len(run.images) == 1
    assert [crop for crop in run.crops if crop.shown is not None] == []


MOSAICS = {
    "stacked": "cv2.imwrite('c.png', np.hstack([a[20:80, 10:60], a[100:160, 200:250]]))",
    "pasted": "k = Image.new('RGB', (110, 60))\nk.paste(image.crop((10, 20, 60, 80)), (0, 0))\n"
    "k.paste(image.crop((200, 100, 250, 160)), (60, 0))\nk.save('c.png')",
    "written": "k = np.zeros((60, 110, 3), np.uint8)\nk[:, :50] = a[20:80, 10:60]\n"
    "k[:, 60:] = a[100:160, 200:250]\nImage.fromarray(k).save('c.png')",
    "drawn": "import matplotlib.pyplot as plt\n_, axes = plt.subplots(1, 2)\n"
    "axes[0].imshow(a[20:80, 10:60])\n"
    "axes[1].imshow(a[100:160, 200:250])\nplt.show()",
}


@pytest.mark.parametrize("name", MOSAICS)
def test_a_mosaic_shows_each_of_its_regions(box: Box, name: str) -> None:
    run = box.one(f"a = np.array(image)\n{MOSAICS[name]}")
    shown = [(crop.bbox, crop.shown) for crop in run.crops if crop.shown is not None]
    assert shown == [((10, 20, 60, 80), 0), ((200, 100, 250, 160), 0)]


def test_a_part_of_a_mosaic_shows_only_what_is_in_it(box: Box) -> None:
    run = box.one(
        "a = np.array(image)\nk = np.hstack([a[20:80, 10:60], a[100:160, 200:250]])\n"
        "Image.fromarray(k).crop((60, 10, 90, 40)).save('c.png')"
    )
    assert [crop.bbox for crop in run.crops if crop.shown == 0] == [(210, 110, 240, 140)]


def test_a_clamped_crop_holds_only_pixels_of_the_input(box: Box) -> None:
    run = box.one("image.crop((350, -40, 500, 60)).save('c.png')")
    assert np.array_equal(decoded(run.images[0]), picture()[0:60, 350:400])


@pytest.mark.parametrize("place", ["(500, 20, 600, 80)", "(50, 60, 50, 90)", "(60, 20, 10, 80)"])
def test_a_crop_without_a_pixel_is_an_error(box: Box, place: str) -> None:
    run = box.one(f"image.crop({place}).save('c.png')")
    assert run.status == "error"
    assert "ValueError" in run.error


def test_honest_negative_slices_keep_their_meaning(box: Box) -> None:
    code = (
        "a = np.array(image)\n"
        "print(a[-50:, -20:].shape, a[-50:-10, 5:-5].shape, a[-300:100, 0:5].shape, [1, 2, 3][-2:3])"
    )
    assert box.one(code).output == "(50, 20, 3) (40, 390, 3) (100, 5, 3) [2, 3]"


def test_pictures_look_like_plain_arrays_to_the_model(box: Box) -> None:
    code = """
a = np.array(image)
print(type(a), type(a.mean()), type(a.max()), type(np.median(a)), {a.min(): 1} is not None, f"{a.mean():.1f}")
print(repr(a[0, 0]), a.sum(axis=(0, 1)).shape, (a == a).all(), np.unique(a[:, :, 0] * 0))
"""
    plain = picture()
    first, second = box.one(code).output.split("\n")
    assert first.startswith(
        "<class 'numpy.ndarray'> <class 'numpy.float64'> <class 'numpy.uint8'> <class 'numpy.float64'>"
    )
    assert math.isclose(float(first.split()[-1]), plain.mean(), abs_tol=0.06)
    assert second == f"{plain[0, 0]!r} (3,) True [0]"
