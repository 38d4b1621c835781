"""Ways in which a model, or a tester, may come to show a part of a picture, and the boxes to report.

Each runs with `x0, y0, x1, y1` (the box), `w, h` (its size), `W, H` (of the input), `image` and `image_path`.
"""

from dataclasses import dataclass

Box = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Way:
    """One piece of code."""

    code: str
    truth: str = "[(x0, y0, x1, y1)]"
    """An expression: the boxes that the last picture shows, in any order."""

    def program(self, box: tuple[int, int, int, int], size: tuple[int, int]) -> str:
        """The code for one box in an input of a given size."""
        x0, y0, x1, y1 = box
        return (
            f"x0, y0, x1, y1 = {x0}, {y0}, {x1}, {y1}\nw, h = {x1 - x0}, {y1 - y0}\n"
            f"W, H = {size[0]}, {size[1]}\n{self.code}\n"
        )

    def boxes(self, box: tuple[int, int, int, int], size: tuple[int, int]) -> list[Box]:
        """The boxes that must be reported."""
        x0, y0, x1, y1 = box
        names = {"x0": x0, "y0": y0, "x1": x1, "y1": y1, "w": x1 - x0, "h": y1 - y0}
        found = eval(self.truth, {**names, "W": size[0], "H": size[1], "min": min, "max": max})
        return [tuple(float(side) for side in box) for box in found]  # type: ignore[misc]


WHOLE = "[(0, 0, W, H)]"
C = "c = image.crop((x0, y0, x1, y1))\n"
A = "a = np.array(image)\n"
B = "a = cv2.imread(image_path)\n"
S = "Image.fromarray(c).save('c.png')"
M = "m = Image.new('L', (W, H))\nm.paste(255, (x0, y0, x1, y1))\n"
N = "m = np.zeros((H, W, 1), bool)\nm[y0:y1, x0:x1] = True\n"
LEFT, RIGHT = "(x0, y0, x0 + w // 2, y1)", "(x0 + w // 2, y0, x1, y1)"

PIL: dict[str, str | Way] = {
    "map": "list(map(image.crop, [(x0, y0, x1, y1)]))[0].save('c.png')",
    "lambda": "(lambda p, b: p.crop(b))(image, (x0, y0, x1, y1)).save('c.png')",
    "partial": "import functools\nfunctools.partial(image.crop, (x0, y0, x1, y1))().save('c.png')",
    "unbound method": "Image.Image.crop(image, (x0, y0, x1, y1)).save('c.png')",
    "getattr": "getattr(image, 'cr' + 'op')([x0, y0, x1, y1]).save('c.png')",
    "box by keyword": "image.crop(box=(x0, y0, x1, y1)).save('c.png')",
    "box of numpy numbers": "image.crop(np.array([x0, y0, x1, y1])).save('c.png')",
    "with statement": "with Image.open(image_path) as p:\n    p.crop((x0, y0, x1, y1)).save('c.png')",
    "pathlib": "from pathlib import Path\nImage.open(Path(image_path)).crop((x0, y0, x1, y1))"
    ".save(Path('c.png'))",
    "absolute path": "Image.open(os.path.abspath(image_path)).crop((x0, y0, x1, y1))"
    ".save(os.path.abspath('c.png'))",
    "real path": "Image.open(os.path.realpath(image_path)).crop((x0, y0, x1, y1)).save('c.png')",
    "open file": "with open(image_path, 'rb') as f:\n    Image.open(f).crop((x0, y0, x1, y1)).save('c.png')",
    "bytes of the file": "import io\nImage.open(io.BytesIO(open(image_path, 'rb').read()))"
    ".crop((x0, y0, x1, y1)).save('c.png')",
    "base64 of the file": "import base64, io\ns = base64.b64encode(open(image_path, 'rb').read())\n"
    "Image.open(io.BytesIO(base64.b64decode(s))).convert('RGB').crop((x0, y0, x1, y1)).save('c.png')",
    "buffer written": C
    + "import io\nb = io.BytesIO()\nc.save(b, 'PNG')\nopen('c.png', 'wb').write(b.getvalue())",
    "jpeg buffer written": C + "import io\nb = io.BytesIO()\nc.save(b, format='JPEG', quality=60)\n"
    "with open('c.jpg', 'wb') as f:\n    f.write(b.getbuffer())",
    "buffer opened again": C
    + "import io\nb = io.BytesIO()\nc.save(b, 'PNG')\nb.seek(0)\nImage.open(b).save('c.png')",
    "saved to an open file": C + "with open('c.png', 'wb') as f:\n    c.save(f, 'PNG')",
    "saved in a subfolder": C + "os.makedirs('out/crops', exist_ok=True)\nc.save('out/crops/c.png')",
    "jpeg of quality 50": C + "c.save('c.jpg', quality=50)",
    "webp": C + "c.save('c.webp')",
    "saved and cropped again": Way(
        C + "c.save('d.png')\nImage.open('d.png').crop((4, 5, w - 6, h - 7)).save('e.png')",
        "[(x0 + 4, y0 + 5, x1 - 6, y1 - 7)]",
    ),
    "saved as jpeg and cropped again": Way(
        C + "c.save('d.jpg')\nd = cv2.imread('d.jpg')\ncv2.imwrite('e.png', d[5:h - 7, 4:w - 6])",
        "[(x0 + 4, y0 + 5, x1 - 6, y1 - 7)]",
    ),
    "copied and renamed": C + "import shutil\nc.save('d.dat', 'PNG')\nshutil.copy('d.dat', 'c.png')",
    "fit": "from PIL import ImageOps\nImageOps.fit(image.crop((x0, y0, x1, y1)), (w, h)).save('c.png')",
    "fit to a square": Way(
        "from PIL import ImageOps\nImageOps.fit(image, (100, 100)).save('c.png')",
        "[((W - min(W, H)) / 2, (H - min(W, H)) / 2, (W + min(W, H)) / 2, (H + min(W, H)) / 2)]",
    ),
    "pad": "from PIL import ImageOps\nImageOps.pad(image.crop((x0, y0, x1, y1)), (336, 336), "
    "color='gray').save('c.png')",
    "expand": "from PIL import ImageOps\nImageOps.expand(image.crop((x0, y0, x1, y1)), 12, 'red')"
    ".save('c.png')",
    "crop of ImageOps": Way(
        C + "from PIL import ImageOps\nImageOps.crop(c, 5).save('c.png')",
        "[(x0 + 5, y0 + 5, x1 - 5, y1 - 5)]",
    ),
    "upright": C + "from PIL import ImageOps\nImageOps.exif_transpose(c).save('c.png')",
    "contain": C + "from PIL import ImageOps\nImageOps.contain(c, (200, 200)).save('c.png')",
    "scale": C + "from PIL import ImageOps\nImageOps.scale(c, 1.7).save('c.png')",
    "mirror": C + "from PIL import ImageOps\nImageOps.mirror(c).save('c.png')",
    "autocontrast": C + "from PIL import ImageOps\nImageOps.autocontrast(c, cutoff=2).save('c.png')",
    "equalize": C + "from PIL import ImageOps\nImageOps.equalize(c).save('c.png')",
    "invert": C + "from PIL import ImageOps\nImageOps.invert(c).save('c.png')",
    "posterize": C + "from PIL import ImageOps\nImageOps.posterize(c, 3).save('c.png')",
    "colorize": C
    + "from PIL import ImageOps\nImageOps.colorize(c.convert('L'), 'navy', 'yellow').save('c.png')",
    "thumbnail": C + "c.thumbnail((64, 64))\nc.save('c.png')",
    "resized to a square": C + "c.resize((224, 224)).save('c.png')",
    "resized thrice": C
    + "c.resize((w * 2, h * 2)).resize((w // 2, h // 2)).resize((300, 300)).save('c.png')",
    "enlarged by Lanczos, sharpened": C + "from PIL import ImageFilter\n"
    "c.resize((w * 4, h * 4), Image.Resampling.LANCZOS).filter(ImageFilter.UnsharpMask(2, 150))"
    ".save('c.png')",
    "transform extent": "image.transform((w, h), Image.Transform.EXTENT, data=(x0, y0, x1, y1))"
    ".save('c.png')",
    "transform affine": "image.transform((w, h), Image.AFFINE, (1, 0, x0, 0, 1, y0)).save('c.png')",
    "transform quad": "image.transform((w, h), Image.QUAD, (x0, y0, x0, y1, x1, y1, x1, y0)).save('c.png')",
    "transform perspective": "image.transform((w, h), Image.PERSPECTIVE, (1, 0, x0, 0, 1, y0, 0, 0))"
    ".save('c.png')",
    "turned by 30 degrees": C + "c.rotate(30, expand=True).save('c.png')",
    "turned by 90, cropped, turned back": Way(
        "image.rotate(90, expand=True).crop((y0, W - x1, y1, W - x0)).rotate(-90, expand=True).save('c.png')"
    ),
    "flipped, cropped": "from PIL import ImageOps\nImageOps.flip(image).crop((x0, H - y1, x1, H - y0))"
    ".save('c.png')",
    "deep copy": "import copy\ncopy.deepcopy(image).crop((x0, y0, x1, y1)).save('c.png')",
    "copy": "import copy\ncopy.copy(image).copy().crop((x0, y0, x1, y1)).copy().save('c.png')",
    "pickled": C + "import pickle\npickle.loads(pickle.dumps(c)).save('c.png')",
    "draft": "p = Image.open(image_path)\np.draft('RGB', (W, H))\np.crop((x0, y0, x1, y1)).save('c.png')",
    "grey": C + "c.convert('L').save('c.png')",
    "with alpha": C + "c = c.convert('RGBA')\nc.putalpha(200)\nc.save('c.png')",
    "palette": C + "c.convert('P', palette=Image.ADAPTIVE, colors=64).save('c.png')",
    "quantized": C + "c.quantize(16).save('c.png')",
    "black and white": C + "c.convert('1').save('c.png')",
    "bands": C + "r, g, b = c.split()\nImage.merge('RGB', (b, g, r)).save('c.png')",
    "one band": C + "c.getchannel('G').save('c.png')",
    "point": C + "c.point(lambda v: 255 - v).save('c.png')",
    "drawn on": C + "from PIL import ImageDraw\nd = ImageDraw.Draw(c)\n"
    "d.rectangle((2, 2, w // 2, h // 2), outline='red', width=3)\nd.text((5, 5), 'A')\nc.save('c.png')",
    "enhanced": C + "from PIL import ImageEnhance\nfor kind in (ImageEnhance.Brightness, ImageEnhance.Color, "
    "ImageEnhance.Sharpness):\n    c = kind(c).enhance(1.8)\nc.save('c.png')",
    "filtered": C
    + "from PIL import ImageFilter\nc.filter(ImageFilter.GaussianBlur(1)).filter(ImageFilter.DETAIL)"
    ".filter(ImageFilter.MedianFilter(3)).save('c.png')",
    "edges": C + "from PIL import ImageFilter\nc.filter(ImageFilter.FIND_EDGES).save('c.png')",
    "on a transparent canvas": C + "k = Image.new('RGBA', (w + 40, h + 30), (0, 0, 0, 255))\n"
    "k.alpha_composite(c.convert('RGBA'), (20, 10))\nk.convert('RGB').save('c.png')",
    "composited": C
    + "d = Image.alpha_composite(Image.new('RGBA', c.size), c.convert('RGBA'))\nd.save('c.png')",
    "blended": C + "Image.blend(c, Image.new('RGB', c.size, 'red'), 0.3).save('c.png')",
    "multiplied": C + "from PIL import ImageChops\nd = Image.new('RGB', c.size, (200, 220, 180))\n"
    "ImageChops.multiply(c, d).save('c.png')",
    "composite of a mask": M + "Image.composite(image, Image.new('RGB', (W, H)), m).save('c.png')",
    "composite of the inverse": M + "from PIL import ImageOps\n"
    "Image.composite(Image.new('RGB', (W, H), 'white'), image, ImageOps.invert(m)).save('c.png')",
    "pasted through a mask": M + "k = Image.new('RGB', (W, H), 'white')\nk.paste(image, (0, 0), m)\n"
    "k.save('c.png')",
    "pasted through a mask of its size": Way(
        C + "m = Image.new('1', (w, h))\nm.paste(1, (5, 6, w, h))\nk = Image.new('RGB', (w + 40, h + 40))\n"
        "k.paste(c, (10, 20), mask=m)\nk.save('c.png')",
        "[(x0 + 5, y0 + 6, x1, y1)]",
    ),
    "all else painted": M + "from PIL import ImageOps\nk = image.copy()\n"
    "k.paste((0, 0, 0), (0, 0, W, H), ImageOps.invert(m))\nk.save('c.png')",
    "all else pasted over": M + "from PIL import ImageOps\nk = image.copy()\n"
    "k.paste(Image.new('RGB', (W, H)), mask=ImageOps.invert(m))\nk.save('c.png')",
    "a round mask": C + "from PIL import ImageDraw\nm = Image.new('L', c.size)\n"
    "ImageDraw.Draw(m).ellipse((0, 0, w - 1, h - 1), fill=255)\nk = Image.new('RGB', c.size)\n"
    "k.paste(c, (0, 0), m)\nk.save('c.png')",
    "pasted through itself": C + "c = c.convert('RGBA')\nk = Image.new('RGB', (w + 20, h + 20))\n"
    "k.paste(c, (10, 10), c)\nk.save('c.png')",
    "all pasted over first": C + "k = image.copy()\nk.paste(Image.new('RGB', (W, H), 'white'))\n"
    "k.paste(c, (0, 0))\nk.save('c.png')",
    "two pasted side by side": Way(
        "k = Image.new('RGB', (w, h + 10))\nm = w // 2\nk.paste(image.crop((x0, y0, x0 + m, y1)), (0, 0))\n"
        "k.paste(image.crop((x0 + m, y0, x1, y1)), (m, 10))\nk.save('c.png')",
        f"[{LEFT}, {RIGHT}]",
    ),
    "put together again": "k = Image.new('RGB', (w, h))\nm = w // 2\n"
    "k.paste(image.crop((x0, y0, x0 + m, y1)), (0, 0))\nk.paste(image.crop((x0 + m, y0, x1, y1)), (m, 0)"
    ")\nk.save('c.png')",
    "canvas used twice": "k = Image.new('RGB', (w, h))\nk.paste(image.crop((0, 0, w, h)), (0, 0))\n"
    "k.save('b.png')\n"
    "k.paste(image.crop((x0, y0, x1, y1)), (0, 0))\nk.save('c.png')",
    "on a copy that is painted white": C + "k = image.copy()\nk.paste('white', (0, 0, W, H))\n"
    "k.paste(c, (0, 0))\nk.save('c.png')",
    "cut out of a padded picture": C
    + "k = Image.new('RGB', (w + 60, h + 60), 'white')\nk.paste(c, (30, 30))\n"
    "k.crop((30, 30, 30 + w, 30 + h)).save('c.png')",
    "loop over tiles": "for i in range(3):\n    image.crop((x0 + i - 2, y0 + i - 2, x1, y1))"
    ".save(f'tile_{i}.png')",
    "comprehension of boxes": "boxes = {'a': (0, 0, 30, 30), 'b': (x0, y0, x1, y1)}\n"
    "{k: image.crop(b).save(f'{k}.png') for k, b in boxes.items()}",
    "too large a box": Way("image.crop((x0, y0, W + 100, H + 100)).save('c.png')", "[(x0, y0, W, H)]"),
    "in a class": "class Tool:\n    def __init__(self, p): self.p = Image.open(p)\n"
    "    def zoom(self, *b): return self.p.crop(b).resize((200, 200))\nTool(image_path).zoom(x0, y0, "
    "x1, y1).save('c.png')",
    "shown": "image.crop((x0, y0, x1, y1)).show(title='x')",
    "displayed": "from IPython.display import display\ndisplay(image.crop((x0, y0, x1, y1)))",
    "cut twice": "image.crop((x0 // 2, y0 // 2, W, H)).crop((x0 - x0 // 2, y0 - y0 // 2, x1 - x0 // 2, "
    "y1 - y0 // 2)).save('c.png')",
    "frombytes": C + "Image.frombytes('RGB', c.size, c.tobytes()).save('c.png')",
    "putdata": C + "d = Image.new('RGB', (w, h))\nd.putdata(list(c.getdata()))\nd.save('c.png')",
    "enlarged and rolled into a list": C
    + "Image.fromarray(np.array(c.resize((w * 3, h * 3)).getdata(), np.uint8)"
    ".reshape(h * 3, w * 3, 3)).save('c.png')",
}

NUMPY: dict[str, str | Way] = {
    "slices of np.s_": A + "c = a[np.s_[y0:y1, x0:x1]]\n" + S,
    "slice objects": A + "c = a[slice(y0, y1), slice(x0, x1), :]\n" + S,
    "getitem": A + "c = a.__getitem__((slice(y0, y1), slice(x0, x1)))\n" + S,
    "operator.getitem": A + "import operator\nc = operator.getitem(a, (slice(y0, y1), slice(x0, x1)))\n" + S,
    "ellipsis": A + "c = a[y0:y1, x0:x1, ...]\n" + S,
    "two steps": A + "c = a[y0:][:h][:, x0:][:, :w]\n" + S,
    "negative slices": A + "c = a[y0 - H:y1 - H or None, x0 - W:x1 - W or None]\n" + S,
    "take": A + "c = np.take(np.take(a, range(y0, y1), axis=0), np.arange(x0, x1), axis=1)\n" + S,
    "take method": A + "c = a.take(np.arange(y0, y1), 0).take(np.arange(x0, x1), axis=1)\n" + S,
    "ix_": A + "c = a[np.ix_(np.arange(y0, y1), np.arange(x0, x1))]\n" + S,
    "ix_ with channels": A + "c = a[np.ix_(range(y0, y1), range(x0, x1), range(3))]\n" + S,
    "lists of rows": A + "c = a[list(range(y0, y1))][:, list(range(x0, x1))]\n" + S,
    "arrays of places": A + "yy, xx = np.mgrid[y0:y1, x0:x1]\nc = a[yy, xx]\n" + S,
    "meshgrid": A + "xx, yy = np.meshgrid(np.arange(x0, x1), np.arange(y0, y1))\nc = a[yy, xx]\n" + S,
    "every second": A + "c = a[np.arange(y0, y1, 2)][:, np.arange(x0, x1, 2)]\n" + S,
    "masks of rows": A + "r = np.zeros(H, bool)\nr[y0:y1] = True\nk = np.zeros(W, bool)\nk[x0:x1] = True\n"
    "c = a[r][:, k]\n" + S,
    "compress": A
    + "r = (np.arange(H) >= y0) & (np.arange(H) < y1)\nk = (np.arange(W) >= x0) & (np.arange(W) < x1)\n"
    "c = np.compress(k, a.compress(r, axis=0), axis=1)\n" + S,
    "delete": A
    + "c = np.delete(a, np.r_[0:y0, y1:H], axis=0)\nc = np.delete(c, np.r_[0:x0, x1:W], axis=1)\n"
    + S,
    "split": A + "c = np.split(np.split(a, [y0, y1], axis=0)[1], [x0, x1], axis=1)[1]\n" + S,
    "hsplit and vsplit": A + "c = np.hsplit(np.vsplit(a, [y0, y1])[1], [x0, x1])[1]\n" + S,
    "array_split": Way(
        A + "c = np.array_split(np.array_split(a[y0:y1, x0:x1], 2, axis=0)[1], 2, axis=1)[0]\n" + S,
        "[(x0, y0 + (h + 1) // 2, x0 + (w + 1) // 2, y1)]",
    ),
    "swapaxes": A + "c = a.swapaxes(0, 1)[x0:x1, y0:y1].swapaxes(0, 1)\n" + S,
    "channels first": A + "c = a.transpose(2, 0, 1)[:, y0:y1, x0:x1].transpose(1, 2, 0)\n" + S,
    "moveaxis": A + "c = np.moveaxis(np.moveaxis(a, -1, 0)[:, y0:y1, x0:x1], 0, -1)\n" + S,
    "batch": A + "c = np.expand_dims(a, 0)[:, y0:y1, x0:x1][0]\n" + S,
    "batch of copies": A + "c = np.stack([a, a])[1][y0:y1, x0:x1]\n" + S,
    "blocks": Way(
        A + "c = a[:H // 32 * 32, :W // 32 * 32]\n"
        "c = c.reshape(H // 32, 32, W // 32, 32, 3).swapaxes(1, 2)[1, 2]\n" + S,
        "[(64, 32, 96, 64)]",
    ),
    "memoryview": A + "c = np.asarray(memoryview(a))[y0:y1, x0:x1]\n" + S,
    "frombuffer": A + "c = np.frombuffer(a.tobytes(), np.uint8).reshape(a.shape)[y0:y1, x0:x1]\n" + S,
    "frombuffer of the picture": "a = np.frombuffer(image.tobytes(), np.uint8).reshape(H, W, 3)\n"
    "c = a[y0:y1, x0:x1]\n" + S,
    "getdata": "a = np.array(image.getdata(), np.uint8).reshape(H, W, 3)\nc = a[y0:y1, x0:x1]\n" + S,
    "as_strided": A
    + "a = np.ascontiguousarray(a)\nc = np.lib.stride_tricks.as_strided(a[y0:, x0:], (h, w, 3), a.strides)\n"
    + S,
    "windows": A + "c = np.lib.stride_tricks.sliding_window_view(a, (h, w, 3))[y0, x0, 0]\n" + S,
    "astype": A + "c = a.astype(np.float32)[y0:y1, x0:x1].astype('uint8')\n" + S,
    "type call": A + "c = np.uint8(np.clip(a * 0.5 + 20, 0, 255))[y0:y1, x0:x1]\n" + S,
    "tolist": A + "c = np.array(a[y0:y1, x0:x1].tolist(), dtype=np.uint8)\n" + S,
    "list of lists": A + "c = np.array([[a[y, x] for x in range(x0, x1)] for y in range(y0, y1)])\n" + S,
    "pixel by pixel": "p = image.load()\nd = Image.new('RGB', (w, h))\nq = d.load()\n"
    "for y in range(h):\n    for x in range(w):\n        q[x, y] = p[x0 + x, y0 + y]\nd.save('c.png')",
    "copied into zeros": A + "c = np.zeros((h, w, 3), np.uint8)\nc[:] = a[y0:y1, x0:x1]\n" + S,
    "in a canvas": A
    + "c = np.full((h + 20, w + 30, 3), 255, np.uint8)\nc[5:5 + h, 10:10 + w] = a[y0:y1, x0:x1]\n"
    + S,
    "in a canvas made of a copy": A
    + "c = a.copy()[:h + 20, :w + 30].copy()\nc[:] = 255\nc[5:5 + h, 10:10 + w] = a[y0:y1, x0:x1]\n"
    + S,
    "in a copy filled": A + "c = a.copy()\nc.fill(0)\nc[:h, :w] = a[y0:y1, x0:x1]\n" + S,
    "copyto": A + "c = np.empty((h, w, 3), np.uint8)\nnp.copyto(c, a[y0:y1, x0:x1])\n" + S,
    "pad": A + "c = np.pad(a[y0:y1, x0:x1], ((8, 8), (16, 16), (0, 0)), constant_values=128)\n" + S,
    "pad by reflection": A + "c = np.pad(a[y0:y1, x0:x1], ((8, 8), (8, 8), (0, 0)), mode='reflect')\n" + S,
    "repeat": A + "c = a[y0:y1, x0:x1].repeat(3, axis=0).repeat(3, axis=1)\n" + S,
    "np.repeat": A + "c = np.repeat(np.repeat(a[y0:y1, x0:x1], 2, 0), 2, 1)\n" + S,
    "kron": A + "c = np.kron(a[y0:y1, x0:x1], np.ones((2, 2, 1), np.uint8))\n" + S,
    "nearest by hand": A
    + "r = (np.arange(3 * h) / 3).astype(int) + y0\nk = (np.arange(3 * w) / 3).astype(int) + x0\n"
    "c = a[r[:, None], k]\n" + S,
    "side by side": Way(
        A
        + "m = x0 + w // 2\nc = np.hstack([a[y0:y1, x0:m], np.zeros((h, 5, 3), np.uint8), a[y0:y1, m:x1]])\n"
        + S,
        f"[{LEFT}, {RIGHT}]",
    ),
    "appended": Way(
        A + "m = x0 + w // 2\nc = np.append(a[y0:y1, x0:m], a[y0:y1, m:x1], axis=1)\n" + S,
        f"[{LEFT}, {RIGHT}]",
    ),
    "concatenated": Way(
        A + "m = y0 + h // 2\nc = np.concatenate((a[m:y1, x0:x1], a[y0:m, x0:x1]), axis=0)\n" + S,
        "[(x0, y0, x1, y0 + h // 2), (x0, y0 + h // 2, x1, y1)]",
    ),
    "grey": A + "c = a[y0:y1, x0:x1].mean(axis=2).astype(np.uint8)\n" + S,
    "grey by weights": A + "c = np.dot(a[y0:y1, x0:x1, :3], [0.299, 0.587, 0.114]).astype(np.uint8)\n" + S,
    "grey in three channels": A + "g = a[y0:y1, x0:x1, 0]\nc = np.stack([g, g, g], axis=-1)\n" + S,
    "inverted": A + "c = 255 - a[y0:y1, x0:x1]\n" + S,
    "gamma": A + "c = (255 * (a[y0:y1, x0:x1] / 255.0) ** 0.5).astype(np.uint8)\n" + S,
    "stretched": A
    + "c = a[y0:y1, x0:x1].astype(float)\nc = ((c - c.min()) / (c.max() - c.min()) * 255).astype(np.uint8)\n"
    + S,
    "lookup table": A + "c = (np.arange(256)[::-1].astype(np.uint8))[a[y0:y1, x0:x1]]\n" + S,
    "lookup table that folds": A
    + "t = (np.arange(256) * 7 % 256).astype(np.uint8)\nc = t[a][y0:y1, x0:x1]\n"
    + S,
    "lookup table of one channel": A
    + "t = np.arange(256) * 7 % 256\nc = np.uint8(t[a[y0:y1, x0:x1, 0]])\n"
    + S,
    "palette": A + "p = np.array([[9, 200, 60], [250, 0, 99], [0, 90, 250], [180, 180, 0]], np.uint8)\n"
    "c = p[a[y0:y1, x0:x1, 1] // 64]\n" + S,
    "taken from a table": A
    + "c = np.take((np.arange(256) * 7 % 256).astype(np.uint8), a[y0:y1, x0:x1])\n"
    + S,
    "interpolated curve": A + "c = np.interp(a[y0:y1, x0:x1], [0, 90, 160, 255], [250, 0, 230, 9])"
    ".astype(np.uint8)\n" + S,
    "selected levels": A + "g = a[y0:y1, x0:x1, 1]\nc = np.select([g < 90, g < 150], [255 - g, g // 2], 200)"
    ".astype(np.uint8)\n" + S,
    "classes": A
    + "c = np.array([0, 200, 90, 255], np.uint8)[np.digitize(a[y0:y1, x0:x1, 0], [60, 120, 180])]"
    "\n" + S,
    "distance from a colour": A + "c = np.linalg.norm(a[y0:y1, x0:x1] - np.array([120, 120, 120]), axis=2)\n"
    "c = (c / c.max() * 255).astype(np.uint8)\n" + S,
    "looked up as a list": A + "t = np.arange(256) * 7 % 256\ng = a[y0:y1, x0:x1, 1]\n"
    "c = t[g.flatten()].reshape(g.shape).astype(np.uint8)\n" + S,
    "folded as a list of pixels": A + "p = a[y0:y1, x0:x1].reshape(-1, 3).astype(float)\n"
    "c = np.uint8(255 - 2 * np.abs(p - 128)).reshape(h, w, 3)\n" + S,
    "interpolated as a list": A + "g = a[y0:y1, x0:x1, 1]\n"
    "c = np.interp(g.ravel(), [0, 90, 160, 255], [250, 0, 230, 9]).reshape(h, w).astype(np.uint8)\n" + S,
    "through a round mask": A + "yy, xx = np.mgrid[:h, :w]\nc = a[y0:y1, x0:x1]\nd = np.zeros_like(c)\n"
    "m = (2 * xx / w - 1) ** 2 + (2 * yy / h - 1) ** 2 < 1.1\nd[m] = c[m]\nc = d\n" + S,
    "brighter through a mask": A + "m = np.zeros((H, W), bool)\nm[y0:y1, x0:x1] = ~np.eye(h, w, dtype=bool)\n"
    "c = np.full_like(a, 255)\nc[m] = a[m] // 2 + 90\n" + S,
    "copied through a round mask": A + "yy, xx = np.mgrid[:h, :w]\nd = np.zeros((h, w, 3), np.uint8)\n"
    "m = (2 * xx / w - 1) ** 2 + (2 * yy / h - 1) ** 2 < 1.1\n"
    "np.copyto(d, a[y0:y1, x0:x1], where=m[..., None])\nc = d\n" + S,
    "rolled along both axes": A + "c = np.roll(a, (-y0, -x0), axis=(0, 1))[:h, :w]\n" + S,
    "channels swapped": A + "c = a[y0:y1, x0:x1, ::-1]\n" + S,
    "masked": A + "m = np.zeros((H, W, 1), np.uint8)\nm[y0:y1, x0:x1] = 1\nc = (a * m)[y0:y1, x0:x1]\n" + S,
    "where": A + "c = a[y0:y1, x0:x1]\nc = np.where(c > 128, c, c // 2)\n" + S,
    "times a mask": A + N + "c = a * m\n" + S,
    "times a mask, in place": A + N + "c = a.copy()\nc *= m\n" + S,
    "times a gain": A
    + "c = (a[y0:y1, x0:x1] * np.linspace(0.5, 1, w)[None, :, None]).astype(np.uint8)\n"
    + S,
    "where a mask is": A + N + "c = np.where(m, a, 0).astype(np.uint8)\n" + S,
    "where no mask is": A + N + "c = np.where(~m, np.uint8(255), a)\n" + S,
    "where, in grey": A + N + "c = np.where(m[..., 0], a[..., 1], 0).astype(np.uint8)\n" + S,
    "all else painted": A + N + "c = a.copy()\nc[~m[..., 0]] = 0\n" + S,
    "where a threshold is": A + "c = a[y0:y1, x0:x1]\nc = np.where(c.mean(2, keepdims=True) > 90, c, 0)"
    ".astype(np.uint8)\n" + S,
    "block": Way(
        A + "m = x0 + w // 2\nc = np.block([[[a[y0:y1, m:x1]], [a[y0:y1, x0:m]]]])\n" + S,
        f"[{LEFT}, {RIGHT}]",
    ),
    "block of greys": Way(
        A + "g, m = a[..., 0], x0 + w // 2\n"
        "c = np.block([g[y0:y1, x0:m], np.zeros((h, 5), np.uint8), g[y0:y1, m:x1]])\n" + S,
        f"[{LEFT}, {RIGHT}]",
    ),
    "block of blocks": Way(
        A + "m, n = x0 + w // 2, y0 + h // 2\nc = np.block([[[a[n:y1, x0:m]], [a[n:y1, m:x1]]], "
        "[[a[y0:n, x0:m]], [a[y0:n, m:x1]]]])\n" + S,
        "[(x0, y0, x0 + w // 2, y0 + h // 2), (x0 + w // 2, y0, x1, y0 + h // 2), "
        "(x0, y0 + h // 2, x0 + w // 2, y1), (x0 + w // 2, y0 + h // 2, x1, y1)]",
    ),
    "tile": A + "c = np.tile(a[y0:y1, x0:x1], (2, 1, 1))\n" + S,
    "grey tiled to three channels": A
    + "c = np.tile(a[y0:y1, x0:x1].mean(2).astype(np.uint8)[..., None], 3)\n"
    + S,
    "mirrored": A + "c = np.fliplr(a)[y0:y1, W - x1:W - x0]\n" + S,
    "flipped crop": A + "c = np.flipud(a[y0:y1, x0:x1])\n" + S,
    "turned crop": A + "c = np.rot90(a[y0:y1, x0:x1], k=3).copy()\n" + S,
    "asarray of ints": "c = np.asarray(image, dtype=np.int32)[y0:y1, x0:x1].astype(np.uint8)\n" + S,
    "saved as npy": A + "np.save('c.npy', a[y0:y1, x0:x1])\nc = np.load('c.npy')\n" + S,
    "pickled": A + "import pickle\nc = pickle.loads(pickle.dumps(a[y0:y1, x0:x1]))\n" + S,
    "deep copy": A + "import copy\nc = copy.deepcopy(a)[y0:y1, x0:x1]\n" + S,
    "tiles in a loop": A + "for i in range(2):\n    for j in range(2):\n"
    "        c = a[y0 - 1 + i:y1, x0 - 1 + j:x1]\n        Image.fromarray(c).save(f't_{i}_{j}.png')",
}

OPENCV: dict[str, str | Way] = {
    "slice, resized by dsize": B
    + "c = cv2.resize(a[y0:y1, x0:x1], dsize=(333, 222), interpolation=cv2.INTER_CUBIC)\n"
    "cv2.imwrite('c.png', c)",
    "slice, resized by fx": B
    + "cv2.imwrite('c.png', cv2.resize(src=a[y0:y1, x0:x1], dsize=None, fx=2.5, fy=2.5))",
    "resized to a square": B + "cv2.imwrite('c.jpg', cv2.resize(a[y0:y1, x0:x1], (224, 224)))",
    "unchanged": "a = cv2.imread(image_path, cv2.IMREAD_UNCHANGED)\ncv2.imwrite('c.png', a[y0:y1, x0:x1])",
    "grey reading": "a = cv2.imread(image_path, 0)\ncv2.imwrite('c.png', a[y0:y1, x0:x1])",
    "getRectSubPix": B
    + "c = cv2.getRectSubPix(a, (w, h), (x0 + (w - 1) / 2, y0 + (h - 1) / 2))\ncv2.imwrite('c.png', c)",
    "warpPerspective": B + "p = np.float32([[x0, y0], [x1, y0], [x1, y1], [x0, y1]])\n"
    "q = np.float32([[0, 0], [200, 0], [200, 150], [0, 150]])\n"
    "cv2.imwrite('c.png', cv2.warpPerspective(a, cv2.getPerspectiveTransform(p, q), (200, 150)))",
    "warpPerspective of a trapezoid": B + "p = np.float32([[x0 + 5, y0], [x1 - 5, y0], [x1, y1], [x0, y1]])\n"
    "q = np.float32([[0, 0], [w, 0], [w, h], [0, h]])\n"
    "cv2.imwrite('c.png', cv2.warpPerspective(a, cv2.getPerspectiveTransform(p, q), (w, h)))",
    "warpAffine": B
    + "cv2.imwrite('c.png', cv2.warpAffine(a, np.float32([[1, 0, -x0], [0, 1, -y0]]), (w, h)))",
    "warpAffine, inverse": B + "M = np.float32([[0.5, 0, x0], [0, 0.5, y0]])\n"
    "cv2.imwrite('c.png', cv2.warpAffine(a, M, (2 * w, 2 * h), "
    "flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP))",
    "rotation matrix": B + "M = cv2.getRotationMatrix2D((w / 2, h / 2), 15, 1)\n"
    "cv2.imwrite('c.png', cv2.warpAffine(a[y0:y1, x0:x1], M, (w, h)))",
    "remap": B
    + "mx, my = np.meshgrid(np.arange(x0, x1, dtype=np.float32), np.arange(y0, y1, dtype=np.float32))\n"
    "cv2.imwrite('c.png', cv2.remap(a, mx, my, cv2.INTER_LINEAR))",
    "UMat": B
    + "c = cv2.resize(cv2.UMat(a[y0:y1, x0:x1].copy()), (w * 2, h * 2)).get()\ncv2.imwrite('c.png', c)",
    "imdecode of the file": "a = cv2.imdecode(np.fromfile(image_path, dtype=np.uint8), cv2.IMREAD_COLOR)\n"
    "cv2.imwrite('c.png', a[y0:y1, x0:x1])",
    "imdecode of bytes": "a = cv2.imdecode(np.frombuffer(open(image_path, 'rb').read(), np.uint8), 1)\n"
    "cv2.imwrite('c.png', a[y0:y1, x0:x1])",
    "imencode": B + "ok, b = cv2.imencode('.png', a[y0:y1, x0:x1])\nopen('c.png', 'wb').write(b.tobytes())",
    "imencode to a file": B
    + "cv2.imencode('.jpg', a[y0:y1, x0:x1], [cv2.IMWRITE_JPEG_QUALITY, 50])[1].tofile('c.jpg')",
    "jpeg of quality 50": B + "cv2.imwrite('c.jpg', a[y0:y1, x0:x1], [cv2.IMWRITE_JPEG_QUALITY, 50])",
    "clahe": B + "g = cv2.cvtColor(a[y0:y1, x0:x1], cv2.COLOR_BGR2GRAY)\n"
    "cv2.imwrite('c.png', cv2.createCLAHE(2.0, (8, 8)).apply(g))",
    "clahe in Lab": B + "l = cv2.cvtColor(a[y0:y1, x0:x1], cv2.COLOR_BGR2LAB)\nl, p, q = cv2.split(l)\n"
    "l = cv2.createCLAHE(clipLimit=3.0).apply(l)\n"
    "cv2.imwrite('c.png', cv2.cvtColor(cv2.merge((l, p, q)), cv2.COLOR_LAB2BGR))",
    "sharpened": B + "k = np.array([[0, -1, 0], [-1, 5, -1], [0, -1, 0]])\n"
    "cv2.imwrite('c.png', cv2.filter2D(a[y0:y1, x0:x1], -1, k))",
    "unsharp": B + "c = a[y0:y1, x0:x1]\nb = cv2.GaussianBlur(c, (0, 0), 2)\n"
    "cv2.imwrite('c.png', cv2.addWeighted(c, 1.5, b, -0.5, 0))",
    "otsu": B + "g = cv2.cvtColor(a[y0:y1, x0:x1], cv2.COLOR_BGR2GRAY)\n"
    "cv2.imwrite('c.png', cv2.threshold(g, 0, 255, cv2.THRESH_BINARY + cv2.THRESH_OTSU)[1])",
    "adaptive threshold": B + "g = cv2.cvtColor(a[y0:y1, x0:x1], cv2.COLOR_BGR2GRAY)\n"
    "cv2.imwrite('c.png', cv2.adaptiveThreshold(g, 255, cv2.ADAPTIVE_THRESH_MEAN_C, cv2.THRESH_BINARY, "
    "11, 2))",
    "hsv mask": B + "c = a[y0:y1, x0:x1]\nv = cv2.cvtColor(c, cv2.COLOR_BGR2HSV)\n"
    "m = cv2.inRange(v, (0, 0, 40), (179, 255, 255))\n"
    "cv2.imwrite('c.png', cv2.bitwise_and(c, c, mask=m))",
    "through a mask": B + "m = np.zeros(a.shape[:2], np.uint8)\nm[y0:y1, x0:x1] = 255\n"
    "cv2.imwrite('c.png', cv2.bitwise_and(a, a, mask=m))",
    "copied through a mask": B
    + "m = np.zeros((H, W), np.uint8)\ncv2.rectangle(m, (x0, y0), (x1 - 1, y1 - 1), 255, -1)\n"
    "cv2.imwrite('c.png', cv2.copyTo(a, m))",
    "classes by k-means in new colours": B + "p = np.float32(a[y0:y1, x0:x1].reshape(-1, 3))\n"
    "_, l, _ = cv2.kmeans(p, 4, None, (3, 10, 1.0), 1, cv2.KMEANS_PP_CENTERS)\n"
    "k = np.array([[9, 200, 60], [250, 0, 99], [0, 90, 250], [180, 180, 0]], np.uint8)\n"
    "cv2.imwrite('c.png', k[l.flatten()].reshape(h, w, 3))",
    "magnitude of gradients": B + "g = cv2.cvtColor(a[y0:y1, x0:x1], cv2.COLOR_BGR2GRAY).astype(np.float32)\n"
    "m, _ = cv2.cartToPolar(cv2.Sobel(g, -1, 1, 0), cv2.Sobel(g, -1, 0, 1))\n"
    "cv2.imwrite('c.png', np.uint8(np.clip(m, 0, 255)))",
    "pencil sketch": B + "cv2.imwrite('c.png', cv2.pencilSketch(a[y0:y1, x0:x1])[1])",
    "canny": B + "cv2.imwrite('c.png', cv2.Canny(a[y0:y1, x0:x1], 50, 150))",
    "colour map": B + "g = cv2.cvtColor(a[y0:y1, x0:x1], cv2.COLOR_BGR2GRAY)\n"
    "cv2.imwrite('c.png', cv2.applyColorMap(g, cv2.COLORMAP_JET))",
    "equalized": B
    + "g = cv2.cvtColor(a, cv2.COLOR_BGR2GRAY)\ncv2.imwrite('c.png', cv2.equalizeHist(g)[y0:y1, x0:x1])",
    "denoised": B
    + "cv2.imwrite('c.png', cv2.fastNlMeansDenoisingColored(a[y0:y1, x0:x1], None, 3, 3, 5, 11))",
    "contours": "g = np.zeros((H, W), np.uint8)\ng[y0:y1, x0:x1] = 255\n"
    "k, _ = cv2.findContours(g, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)\nx, y, ww, "
    "hh = cv2.boundingRect(k[0])\n" + B + "cv2.imwrite('c.png', a[y:y + hh, x:x + ww])",
    "drawn on": B + "c = a[y0:y1, x0:x1].copy()\n"
    "cv2.putText(c, 'A', (4, 20), cv2.FONT_HERSHEY_SIMPLEX, 0.6, (0, 0, 255), 2)\n"
    "c = cv2.circle(c, (w // 2, h // 2), 8, (0, 255, 0), 2)\ncv2.imwrite('c.png', c)",
    "border and resize": B
    + "c = cv2.copyMakeBorder(a[y0:y1, x0:x1], 10, 10, 20, 20, cv2.BORDER_CONSTANT, value=(255, 255, 255))\n"
    "cv2.imwrite('c.png', cv2.resize(c, None, fx=1.5, fy=1.5))",
    "hconcat": Way(
        B + "m = x0 + w // 2\ncv2.imwrite('c.png', cv2.hconcat([a[y0:y1, m:x1], a[y0:y1, x0:m]]))",
        f"[{LEFT}, {RIGHT}]",
    ),
    "pyramid": B + "cv2.imwrite('c.png', cv2.pyrUp(cv2.pyrDown(a[y0:y1, x0:x1])))",
    "flip of all axes": B + "cv2.imwrite('c.png', cv2.flip(a, -1)[H - y1:H - y0, W - x1:W - x0])",
    "turned and cropped": B
    + "t = cv2.rotate(a, cv2.ROTATE_180)\ncv2.imwrite('c.png', t[H - y1:H - y0, W - x1:W - x0])",
    "written, read, cropped": Way(
        B + "cv2.imwrite('d.png', a[y0:y1, x0:x1])\nImage.open('d.png').crop((3, 3, w, h)).save('e.png')",
        "[(x0 + 3, y0 + 3, x1, y1)]",
    ),
    "through float": B + "c = a[y0:y1, x0:x1].astype(np.float32) / 255\nc = cv2.GaussianBlur(c, (3, 3), 0)\n"
    "cv2.imwrite('c.png', (c * 255).astype(np.uint8))",
    "selectively blurred": B + "b = cv2.GaussianBlur(a, (31, 31), 0)\nb[y0:y1, x0:x1] = a[y0:y1, x0:x1]\n"
    "cv2.imwrite('c.png', b[y0:y1, x0:x1])",
    "grabbed by k-means": B + "c = a[y0:y1, x0:x1]\np = np.float32(c.reshape(-1, 3))\n"
    "_, l, k = cv2.kmeans(p, 12, None, (3, 10, 1.0), 1, cv2.KMEANS_PP_CENTERS)\n"
    "cv2.imwrite('c.png', np.uint8(k)[l.flatten()].reshape(c.shape))",
}

ND = "from scipy import ndimage\n" + A + "c = a[y0:y1, x0:x1]\n"
SCIPY: dict[str, str | Way] = {
    "rotate": ND + "c = ndimage.rotate(c, 20)\n" + S,
    "rotate in place": ND + "c = ndimage.rotate(c, angle=-15, reshape=False, order=1)\n" + S,
    "quarter turn": ND + "c = ndimage.rotate(c, 90)\n" + S,
    "all turned, cut": Way(
        "import scipy.ndimage\n" + A + "c = scipy.ndimage.rotate(a, 180, axes=(0, 1))"
        "[H - y1:H - y0, W - x1:W - x0]\n" + S
    ),
    "zoom": ND + "c = ndimage.zoom(c, (2.5, 2.5, 1), order=1)\n" + S,
    "opened": ND + "c = ndimage.binary_opening(c[..., 0] > 120)\nc = np.uint8(c) * 255\n" + S,
    "convolved": "from scipy.signal import convolve2d\n" + A + "c = convolve2d(a[y0:y1, x0:x1, 1], "
    "[[0, 1, 0], [1, -4, 1], [0, 1, 0]], mode='same')\nc = np.uint8(np.clip(np.abs(c), 0, 255))\n" + S,
    "convolved, without its rim": Way(
        "from scipy import signal\n" + A + "c = signal.convolve2d(a[y0:y1, x0:x1, 1], "
        "[[0, 1, 0], [1, -4, 1], [0, 1, 0]], mode='valid')\nc = np.uint8(np.clip(np.abs(c), 0, 255))\n" + S,
        "[(x0 + 1, y0 + 1, x1 - 1, y1 - 1)]",
    ),
    "filtered": ND + "c = ndimage.median_filter(ndimage.gaussian_filter(c, (1, 1, 0)), (3, 3, 1))\n" + S,
}

PLT = "import matplotlib.pyplot as plt\nplt.close('all')\n"
FIGURES: dict[str, str | Way] = {
    "imshow of a crop": PLT + C + "plt.imshow(c)\nplt.axis('off')\nplt.show()",
    "imshow of a slice": PLT + A + "plt.imshow(a[y0:y1, x0:x1])\nplt.title('crop')\nplt.savefig('f.png')",
    "limits": PLT + "plt.imshow(image)\nplt.xlim(x0, x1)\nplt.ylim(y1, y0)\nplt.savefig('f.png')",
    "extent and limits": PLT + "fig, ax = plt.subplots()\nax.imshow(image, extent=(0, W, H, 0))\n"
    "ax.set_xlim(x0, x1)\nax.set_ylim(y1, y0)\nfig.savefig('f.jpg')",
    "Agg asked for": "import matplotlib\nmatplotlib.use('Agg')\n"
    + PLT
    + C
    + "plt.figure(figsize=(4, 3))\nplt.imshow(c)\n"
    "plt.savefig('f.png', bbox_inches='tight', dpi=80)\nplt.close()",
    "colour map without a figure": PLT
    + A
    + "c = np.uint8(plt.cm.jet(a[y0:y1, x0:x1, 1] / 255)[..., :3] * 255)\n"
    + S,
    "colour map of bytes": "import matplotlib\n" + A + "g = np.array(image.convert('L'))[y0:y1, x0:x1]\n"
    "c = matplotlib.colormaps['prism'](g, bytes=True)\n" + S,
    "imsave": PLT + A + "plt.imsave('c.png', a[y0:y1, x0:x1])",
    "imread": PLT + "a = plt.imread(image_path)\nplt.imsave('c.png', a[y0:y1, x0:x1])",
    "imread and imshow": PLT + "a = plt.imread(image_path)[y0:y1, x0:x1]\nplt.imshow(a)\nplt.show()",
    "no pyplot": "from matplotlib.figure import Figure\n" + C + "f = Figure(figsize=(4, 3))\n"
    "f.add_subplot().imshow(c)\nf.savefig('f.png')",
    "no pyplot, a canvas": "from matplotlib.backends.backend_agg import FigureCanvasAgg\n"
    "from matplotlib.figure import Figure\n" + A + "f = Figure()\nax = f.subplots()\nax.imshow(a)\n"
    "ax.set_xlim(x0, x1)\nax.set_ylim(y1, y0)\nFigureCanvasAgg(f).print_jpg('f.jpg')",
    "grey imshow": PLT + C + "plt.imshow(c.convert('L'), cmap='gray')\nplt.show()",
    "two subplots": Way(
        PLT + "fig, ax = plt.subplots(1, 2)\nm = x0 + w // 2\nax[0].imshow(image.crop((x0, y0, m, y1)))\n"
        "ax[1].imshow(image.crop((m, y0, x1, y1)))\nplt.tight_layout()\nplt.show()",
        f"[{LEFT}, {RIGHT}]",
    ),
    "an inset": Way(
        PLT + "fig, ax = plt.subplots()\nax.imshow(image)\nz = ax.inset_axes([0.5, 0.5, 0.48, 0.48])\n"
        "z.imshow(image)\nz.set_xlim(x0, x1)\nz.set_ylim(y1, y0)\nax.indicate_inset_zoom(z)\n"
        "plt.savefig('f.png')",
        "[(0, 0, W, H), (x0, y0, x1, y1)]",
    ),
    "figure as an array": PLT + C + "fig = plt.figure()\nax = fig.add_axes([0, 0, 1, 1])\nax.imshow(c)\n"
    "import io\nb = io.BytesIO()\nfig.savefig(b, format='png')\nopen('f.png', 'wb').write(b.getvalue())",
    "a figure's levels": PLT + C + "fig, ax = plt.subplots()\nax.imshow(c)\nfig.canvas.draw()\n"
    "cv2.imwrite('f.png', np.asarray(fig.canvas.buffer_rgba())[..., 2::-1])",
    "a figure's levels, copied": PLT + C + "fig, ax = plt.subplots()\nax.imshow(c)\nfig.canvas.draw()\n"
    "a = np.array(fig.canvas.buffer_rgba())\nImage.fromarray(a).convert('RGB').save('f.png')",
    "a figure's levels, reshaped": PLT
    + C
    + "fig, ax = plt.subplots()\nax.imshow(c)\nfig.canvas.draw()\nw, h = fig.canvas.get_width_height()\n"
    "a = np.frombuffer(fig.canvas.buffer_rgba(), np.uint8).reshape(h, w, 4)[:, :, :3]\n"
    "Image.fromarray(a).save('f.png')",
    "a figure's levels, as bytes": PLT
    + C
    + "fig, ax = plt.subplots()\nax.imshow(c)\nfig.canvas.draw()\nw, h = fig.canvas.get_width_height()\n"
    "Image.frombytes('RGBA', (w, h), fig.canvas.buffer_rgba()).convert('RGB').save('f.png')",
    "displayed figure": PLT
    + "from IPython.display import display\n"
    + C
    + "fig, ax = plt.subplots()\nax.imshow(c)\ndisplay(fig)",
}

WHOLES: dict[str, str | Way] = {
    "saved as it is": Way("image.save('c.png')", WHOLE),
    "displayed": Way(
        "from IPython.display import Image as I, display\ndisplay(I(filename=image_path))", WHOLE
    ),
    "drawn on by PIL": Way(
        "from PIL import ImageDraw\np = image.copy()\nImageDraw.Draw(p).ellipse((x0, y0, x1, y1), "
        "outline='red', width=4)\n"
        "p.save('c.png')",
        WHOLE,
    ),
    "drawn on by OpenCV": Way(
        B + "cv2.imwrite('c.png', cv2.rectangle(a, (x0, y0), (x1, y1), (0, 255, 0), 3))", WHOLE
    ),
    "plotted with a box": Way(
        PLT + "import matplotlib.patches as patches\nfig, ax = plt.subplots()\nax.imshow(image)\n"
        "ax.add_patch(patches.Rectangle((x0, y0), w, h, fill=False))\nplt.show()",
        WHOLE,
    ),
    "a colour through a mask": Way(
        "k = image.copy()\nm = Image.new('1', k.size)\nm.paste(1, (0, 0, 9, 9))\nk.paste((255, 0, 0), m)\n"
        "k.save('c.png')",
        WHOLE,
    ),
    "a close-up in the corner": Way(
        "p = image.copy()\np.paste(image.crop((x0, y0, x1, y1)).resize((60, 60)), (0, 0))\np.save('c.png')",
        "[(0, 0, W, H), (x0, y0, x1, y1)]",
    ),
    "a close-up in the corner, by OpenCV": Way(
        B + "z = cv2.resize(a[y0:y1, x0:x1], (60, 60))\na[:60, W - 60:] = z\ncv2.imwrite('c.png', a)",
        "[(0, 0, W, H), (x0, y0, x1, y1)]",
    ),
    "a piece put back brighter": Way(
        "p = image.copy()\np.paste(image.crop((x0, y0, x1, y1)).point(lambda v: v // 2 + 99), (x0, y0))\n"
        "p.save('c.png')",
        WHOLE,
    ),
    "overlay": Way(
        B + "o = a.copy()\no[y0:y1, x0:x1] = (0, 0, 255)\n"
        "cv2.imwrite('c.png', cv2.addWeighted(o, 0.4, a, 0.6, 0))",
        WHOLE,
    ),
    "a part brighter": Way(
        M + "from PIL import ImageEnhance\n"
        "Image.composite(image, ImageEnhance.Brightness(image).enhance(0.4), m).save('c.png')",
        WHOLE,
    ),
    "a part brighter, by where": Way(A + N + "c = np.where(m, a, a // 3)\n" + S, WHOLE),
    "turned": Way("image.rotate(90, expand=True).save('c.png')", WHOLE),
    "blind, mirrored": Way(
        "Image.frombytes('RGB', (W, H), np.array(image)[:, ::-1].tobytes()).save('c.png')", WHOLE
    ),
    "blind, made small": Way(
        "Image.frombytes('RGB', (W // 2, H // 2), image.resize((W // 2, H // 2)).tobytes()).save('c.jpg')",
        WHOLE,
    ),
}

BLIND = (
    "def blind(p):\n    from PIL import Image\n    return Image.frombytes(p.mode, p.size, p.tobytes())\n"
    "p = blind(image)\nc = p.crop((x0, y0, x1, y1))\n"
)
"""The history is lost before anything is cropped, so only the pixels can tell."""
LOST: dict[str, str | Way] = {
    "copy": BLIND + "c.save('c.png')",
    "jpeg of quality 75": BLIND + "c.save('c.jpg')",
    "jpeg of quality 50": BLIND + "c.save('c.jpg', quality=50)",
    "brighter": BLIND + "c.point(lambda v: v * 0.6 + 40).save('c.png')",
    "inverted": BLIND + "c.point(lambda v: 255 - v).save('c.png')",
    "grey": BLIND + "c.convert('L').save('c.png')",
    "mirrored": BLIND + "c.transpose(0).save('c.png')",
    "quarter turn": BLIND + "c.rotate(90, expand=True).save('c.png')",
    "twice as large": BLIND + "c.resize((w * 2, h * 2)).save('c.png')",
    "thrice as large": BLIND + "c.resize((w * 3, h * 3), Image.LANCZOS).save('c.png')",
    "half as large": BLIND + "c.resize((w // 2, h // 2)).save('c.png')",
    "1.37 times as large": BLIND + "c.resize((round(w * 1.37), round(h * 1.37))).save('c.png')",
    "to 336 pixels": BLIND + "k = 336 / max(w, h)\nc.resize((round(w * k), round(h * k))).save('c.png')",
    "to a square": BLIND + "c.resize((224, 224)).save('c.png')",
    "with a border": BLIND + "from PIL import ImageOps\nImageOps.expand(c, 15, 'black').save('c.png')",
    "blurred": BLIND + "from PIL import ImageFilter\nc.filter(ImageFilter.GaussianBlur(1)).save('c.png')",
    "sharpened": BLIND + "from PIL import ImageFilter\nc.filter(ImageFilter.SHARPEN).save('c.png')",
    "drawn on": BLIND + "from PIL import ImageDraw\n"
    "ImageDraw.Draw(c).rectangle((1, 1, w - 2, h - 2), outline='red')\nc.save('c.png')",
}
GROUPS = {
    "PIL": PIL,
    "numpy": NUMPY,
    "OpenCV": OPENCV,
    "SciPy": SCIPY,
    "figure": FIGURES,
    "whole": WHOLES,
    "lost": LOST,
}
WAYS = {
    f"{group}: {name}": way if isinstance(way, Way) else Way(way)
    for group, ways in GROUPS.items()
    for name, way in ways.items()
}
