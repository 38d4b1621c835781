"""Code after which a process can be reused."""

import ast
import builtins
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sandbox.conftest import Box
from vtune.sandbox import attacks, contained
from vtune.sandbox.contained import is_contained

CONTAINED = {
    "crop": "image.crop((10, 20, 110, 90)).save('crop.png')",
    "opened": "from PIL import Image, ImageOps\nwhole = Image.open(image_path)\nw, h = whole.size\n"
    "c = whole.crop((0, 0, w // 2, h // 2)).resize((w, h), Image.Resampling.LANCZOS)\n"
    "c.save(f'{w}.jpg')\nprint(c.size)",
    "opencv": "import cv2\na = cv2.imread(image_path)\nh, w = a.shape[:2]\n"
    "cv2.imwrite('half.png', cv2.resize(a[: h // 2, 0:w], None, fx=2, fy=2, interpolation=cv2.INTER_CUBIC))",
    "numpy": "import numpy as np\na = np.array(image)[5:50, 5:60]\n"
    "Image.fromarray(a.astype(np.uint8)).show()",
    "loop": "for number, box in enumerate([(0, 0, 40, 40), (40, 0, 80, 40)]):\n"
    "    if number < 5:\n        images[0].crop(box).save(f'part_{number}.png')",
    "enhanced": "display(ImageEnhance.Contrast(image.convert('L')).enhance(1.5))",
    "filtered": "image.filter(ImageFilter.SHARPEN).rotate(90, expand=True).save('a.png', 'PNG')",
    "sheet": "sheet = Image.new('RGB', (80, 40), 'white')\n"
    "sheet.paste(image.crop((0, 0, 40, 40)), (40, 0))\nsheet.save('s.webp')",
    "canvas": "sizes = [max(i.width, math.ceil(i.height / 2)) for i in images]\n"
    "print(sum(sizes), round(math.pi, 2))",
    "names": "print(os.path.join('a', os.path.basename(image_path)), str(len(images)).upper())",
    "thumbnail": "small = image.copy()\nsmall.thumbnail((50, 50))\n"
    "small.transpose(Image.FLIP_LEFT_RIGHT).save('t.gif')",
    "turned": "a = cv2.rotate(np.asarray(image), cv2.ROTATE_180)\n"
    "cv2.imwrite('g.jpg', cv2.cvtColor(a, cv2.COLOR_RGB2GRAY))",
    "warning": "print(np.array([1.0]) / 0)",
    "codev": "import os\nimport random\nfrom PIL import Image\n\n# Load the image\n"
    "image = Image.open(image_path)\n"
    "x1, y1, x2, y2 = 16, 10, 250, 300\ncropped_image = image.crop((x1, y1, x2, y2))\n"
    'processed_path = "cropped_1.jpg"\ncropped_image.save(processed_path)\nprint(processed_path)',
    "codev, opencv": "import cv2\nimport numpy as np\nimage = cv2.imread('image_0.png')\n"
    "x1, y1, x2, y2 = 110, 85, 130, 95\nzoom_factor = 2\ncropped_image = image[y1:y2, x1:x2]\n"
    "resized_image = cv2.resize(cropped_image, None, fx=zoom_factor, fy=zoom_factor, "
    "interpolation=cv2.INTER_LINEAR)\ncv2.imwrite('processed_1.jpg', resized_image)",
    "lines": "print('a\\n', f'{image.width}\\t{image.height}')",
    "random": "print(random.randint(0, 10**6), random.choice([1, 2, 3]))",
    "drawn": "draw = ImageDraw.Draw(image)\ndraw.rectangle((5, 5, 50, 50), outline='red', width=3)\n"
    "draw.text((9, 9), 'here', fill='red')\nimage.save('drawn.png')",
    "tried": "try:\n    Image.open('missing.png')\nexcept (Exception) as error:\n    print(error)\n"
    "try:\n    image.crop((9, 9, 1, 1))\nexcept ValueError:\n    print('reversed')\nfinally:\n    x = 1",
    "array": "a = np.zeros((40, 40, 3), np.uint8)\n"
    "cv2.putText(a, 'A', (5, 30), cv2.FONT_HERSHEY_SIMPLEX, 1, (255, 0, 0))\n"
    "cv2.imwrite('a.png', cv2.copyMakeBorder(a, 1, 1, 1, 1, cv2.BORDER_REPLICATE))",
    "nothing": "x = {'a': [1, -2.5, None, True]}\nx = 1 if x and not x == 2 else 3",
}

OUTSIDE = [
    *("f = exec", "max(['1'], key=exec)", "x = plt\nx.show()", "y = random", "print(1, file=os)"),
    *("f'{open}'", "open('a', 'w')", "os.system('a')", "np.save('a', 1)", "Image.ID.append('x')"),
    *("print.crop()", "image.load()", "Image = os", "np.array = 1", "os.environ['a'] = 'b'"),
    *("image.info['a'] = 1", "images[0] = 1", "image.x = 1", "for np in images: pass"),
    *("for image.x in images: pass", "[1 for os in images]", "(np := 1)", "print = 1"),
    *("import os as Image", "import os.path", "from os import path"),
    *("from PIL import ImageFont", "from . import Image", "import sys", "from PIL import *"),
    *("from PIL import Image as np", "def f(): pass", "lambda: 0", "class A: pass"),
    *("try:\n    1\nexcept: 2", "try:\n    1\nexcept BaseException: 2", "with image: pass", "while 1: pass"),
    *("try:\n    1\nexcept Exception as np: 2", "def f(): pass", "lambda: 0", "class A: pass"),
    *("assert image", "raise image", "await image", "yield 1", "return 1", "print(*images)"),
    *("print(**{})", "a, *b = images", "x: int = 5", "x = image.crop", "images[0](1)"),
    *("(image.crop)(1)(2)", "a.b.c.d(1)", "().__class__", "_take(image, 1)", "'\\d'", "'\\x5f'"),
    *("'\\\\n'", "a = = 1", "x\0y"),
    *("(" * 999, "plt.figure()", "random.seed(1)", "ImageDraw.ImageDraw.font = 1", "ImageDraw.ImageDraw"),
    *("{*images}", "{1}", "(i for i in images)", "image.format('a')", "Image.open", "x = math.floor"),
    *("sorted(images, key='{0.size}'.format)", "f = '{0.im}'.format", "max(images, key=np.uint8)"),
    *("np.zeros(9).resize((99,), refcheck=False)", "print(1, file=image)"),
    *("image.save('a.jpg', extra=b'x')", "image.save('a.jpg', exif=b'x')", "image.save('a.png', pnginfo=x)"),
    *("cv2.setRNGSeed(1)", "np.random.seed(1)", "os.getcwd()"),
]  # fmt: skip


@pytest.mark.parametrize("code", CONTAINED.values(), ids=CONTAINED)
def test_what_models_write_to_look_closer_is_contained(code: str) -> None:
    assert is_contained(code)


@pytest.mark.parametrize("code", OUTSIDE)
def test_what_could_reach_further_is_not(code: str) -> None:
    assert not is_contained(code)
    assert not is_contained(f"{CONTAINED['crop']}\n{code}")


@pytest.mark.parametrize("code", ["x = 1if images else 2", "x = 0x1for"])
def test_what_python_would_warn_of_is_not_said_by_the_trainer(code: str) -> None:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        is_contained(code)
    assert said == []


def test_attacks_are_not_contained_but_those_that_only_take_much() -> None:
    folder = Path(attacks.__file__).parent / "snippets"
    snippets = {path.stem: path.read_text() for path in folder.glob("*.py")}
    assert len(snippets) > 100
    assert [name for name, code in snippets.items() if is_contained(code) and name[:4] != "res_"] == []


def test_names_of_modules_are_those_that_a_session_begins_with(box: Box) -> None:
    shown = box.one("print([n for n in globals() if n[0] != '_'])").output
    found = set(ast.literal_eval(shown))
    assert found - set(contained.SESSION.split()) == {"image", "image_path", "image_paths", "images"}


@given(st.sampled_from(sorted({*dir(builtins), *contained.SESSION.split()})))
def test_nothing_that_sessions_share_is_a_value_or_a_target(name: str) -> None:
    uses = (
        f"x = {name}",
        f"{name} = 1",
        f"[{name}]",
        f"print({name})",
        f"x = [1 for {name} in images]",
        f"{name} += 1",
    )
    constants = {"None", "True", "False"}
    assert name in constants or [use for use in uses if is_contained(use)] == []
    assert is_contained(f"{name}(1)") == (name in contained.FUNCTIONS.split())


@given(st.sampled_from(sorted(CONTAINED)), st.sampled_from(OUTSIDE))
def test_the_order_of_lines_does_not_matter(name: str, code: str) -> None:
    assert not is_contained(f"{code}\n{CONTAINED[name]}")
