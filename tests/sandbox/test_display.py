"""Pictures on the way out: the notebook's `display`, light PNG files, pictures through memory."""

import io

import numpy as np
import PIL.Image
import pytest

from tests.sandbox.conftest import Box, decoded, picture


def test_a_displayed_picture_is_shown_with_its_region(box: Box) -> None:
    run = box.one("from IPython.display import display\ndisplay(image.crop((10, 20, 60, 80)), 'text', 7)")
    assert run.output == "'text'\n7"
    assert run.names == ("shown_1.png",)
    assert [(crop.bbox, crop.shown) for crop in run.crops] == [((10, 20, 60, 80), 0)]


def test_a_displayed_file_is_shown(box: Box) -> None:
    run = box.one("import IPython\nIPython.display.display(IPython.display.Image(filename=image_path))")
    assert np.array_equal(decoded(run.images[0]), picture())


def test_a_displayed_figure_is_shown_once(box: Box) -> None:
    code = (
        "import matplotlib.pyplot as plt\nfrom IPython.display import display\n"
        "fig, ax = plt.subplots()\nax.imshow(image)\ndisplay(fig)"
    )
    assert box.one(code).names == ("figure_1.png",)


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "1", "I;16"])
def test_a_saved_png_keeps_every_pixel_and_its_mode(box: Box, mode: str) -> None:
    run = box.one(f"image.convert('{mode}').save('c.png')")
    kept = PIL.Image.open(io.BytesIO(run.images[0]))
    assert kept.mode == mode
    assert np.array_equal(np.array(kept), np.array(PIL.Image.fromarray(picture()).convert(mode)))


def test_what_was_asked_of_a_png_is_done(box: Box) -> None:
    code = (
        "from PIL.PngImagePlugin import PngInfo\ninfo = PngInfo()\ninfo.add_text('who', 'me')\n"
        "image.save('a.png', pnginfo=info, dpi=(72, 72))\nimage.save('b.png', optimize=True)\n"
        "image.save('c.png')\n"
        "print(Image.open('a.png').text, os.path.getsize('b.png') < os.path.getsize('c.png'))"
    )
    assert box.one(code).output == "{'who': 'me'} True"


def test_pictures_survive_pickling_and_copying(box: Box) -> None:
    code = (
        "import copy, pickle\na = np.array(image)\n"
        "for b in (pickle.loads(pickle.dumps(a[2:9, 3:7])), copy.deepcopy(a)[2:9, 3:7]):\n"
        "    print((b == a[2:9, 3:7]).all(), b.shape)\n"
        "p = copy.deepcopy(image)\nprint(np.array_equal(p, image), p is image)"
    )
    assert box.one(code).output == "True (7, 4, 3)\nTrue (7, 4, 3)\nTrue False"


def test_a_backend_of_its_own_choice_does_not_blind_a_figure(box: Box) -> None:
    code = (
        "import matplotlib\nmatplotlib.use('TkAgg')\nimport matplotlib.pyplot as plt\n"
        "plt.imshow(np.array(image)[20:80, 10:60])\nplt.show()"
    )
    assert [(crop.bbox, crop.shown) for crop in box.one(code).crops] == [((10, 20, 60, 80), 0)]
