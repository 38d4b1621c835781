"""Where a shot starts: a crop around the target, one that ignores the target, or a sheet of tiles.

A source is called with the box of the target, the size of the input and its parameters, and returns the draft
of its picture, whose lines use `image` or `image_path`.
"""

from collections.abc import Callable

import numpy as np

from vtune.sandbox.attacks.programs.draft import Draft, Place, either, integer, scaled, shifted, within

Box = tuple[int, int, int, int]
Source = Callable[[Box, tuple[int, int], tuple[float, ...]], Draft]
"""(target's box, (width, height) of the input, parameters) -> the draft of the crop."""

MAX_TILES = 16
"""Tiles per sheet."""


def _bounded(box: Box, size: tuple[int, int]) -> Box:
    """A box within the input, at least 2 pixels per side."""
    width, height = size
    x0, y0 = min(max(box[0], 0), width - 2), min(max(box[1], 0), height - 2)
    return x0, y0, min(max(box[2], x0 + 2), width), min(max(box[3], y0 + 2), height)


def _cut(box: Box, style: float) -> Draft:
    """The lines that crop a box, in one of several styles."""
    x0, y0, x1, y1 = box
    w, h = x1 - x0, y1 - y0
    middle = (x0 + (w - 1) / 2, y0 + (h - 1) / 2)
    options = {
        f"c = image.crop(({x0}, {y0}, {x1}, {y1}))": "pil",
        f"c = np.array(image)[{y0}:{y1}, {x0}:{x1}]": "array",
        f"c = cv2.cvtColor(cv2.imread(image_path), cv2.COLOR_BGR2RGB)[{y0}:{y1}, {x0}:{x1}]": "array",
        f"c = cv2.cvtColor(cv2.imread(image_path)[{y0}:{y1}, {x0}:{x1}], cv2.COLOR_BGR2RGB)": "array",
        f"c = Image.open(image_path).convert('RGB').crop(({x0}, {y0}, {x1}, {y1}))": "pil",
        f"c = image.transform(({w}, {h}), Image.EXTENT, ({x0}, {y0}, {x1}, {y1}))": "pil",
        f"c = cv2.getRectSubPix(np.array(image), ({w}, {h}), {middle})": "array",
        f"c = image.copy().crop(({x0}, {y0}, {x1}, {y1}))": "pil",
    }
    line = either(style, *options)
    place = Place(shifted(-x0, -y0), (x0, y0, x1, y1))
    return Draft([line], w, h, (place,), kind=options[line])


def target(box: Box, size: tuple[int, int], numbers: tuple[float, ...]) -> Draft:
    """The target's own box."""
    return _cut(_bounded(box, size), numbers[0])


def padded(box: Box, size: tuple[int, int], numbers: tuple[float, ...]) -> Draft:
    """The target with up to half its size around it."""
    w, h = box[2] - box[0], box[3] - box[1]
    left, right = (round(within(n, 0, 0.5) * w) for n in numbers[1:3])
    up, down = (round(within(n, 0, 0.5) * h) for n in numbers[2:4])
    return _cut(_bounded((box[0] - left, box[1] - up, box[2] + right, box[3] + down), size), numbers[0])


def nested(box: Box, size: tuple[int, int], numbers: tuple[float, ...]) -> Draft:
    """A crop of a crop."""
    x0, y0, x1, y1 = _bounded((box[0] - 60, box[1] - 40, box[2] + 50, box[3] + 70), size)
    inner = _bounded((box[0] - 6, box[1] - 6, box[2] + 6, box[3] + 6), size)
    a, b, c, d = inner[0] - x0, inner[1] - y0, inner[2] - x0, inner[3] - y0
    draft = _cut(inner, 0.0)
    draft.lines = [f"outer = image.crop(({x0}, {y0}, {x1}, {y1}))", f"c = outer.crop(({a}, {b}, {c}, {d}))"]
    return draft


def partly(box: Box, size: tuple[int, int], numbers: tuple[float, ...]) -> Draft:
    """A box of the target's size, shifted by up to its own side."""
    w, h = box[2] - box[0], box[3] - box[1]
    dx, dy = (round(within(n, -1, 1) * side) for n, side in zip(numbers[1:3], (w, h), strict=True))
    return _cut(_bounded((box[0] + dx, box[1] + dy, box[2] + dx, box[3] + dy), size), numbers[0])


def wide(box: Box, size: tuple[int, int], numbers: tuple[float, ...]) -> Draft:
    """The target within a much larger crop."""
    side = box[2] - box[0]
    pads = [round(within(n, 0.5, 3.0) * side) for n in numbers]
    return _cut(
        _bounded((box[0] - pads[0], box[1] - pads[1], box[2] + pads[2], box[3] + pads[3]), size), numbers[0]
    )


def anywhere(box: Box, size: tuple[int, int], numbers: tuple[float, ...]) -> Draft:
    """A place given by the parameters."""
    width, height = size
    side = integer(numbers[2], 40, 140)
    x, y = round(numbers[0] * (width - side)), round(numbers[1] * (height - side))
    return _cut((x, y, x + side, y + side), numbers[3])


def everything(box: Box, size: tuple[int, int], numbers: tuple[float, ...]) -> Draft:
    """The whole picture."""
    return _cut((0, 0, *size), numbers[0])


def tile(box: Box, size: tuple[int, int], numbers: tuple[float, ...]) -> Draft:
    """One tile of a grid."""
    return _cut(_tiles(size, integer(numbers[0], 2, 6))[_first(numbers, 36)], numbers[3])


def sheet(box: Box, size: tuple[int, int], numbers: tuple[float, ...]) -> Draft:
    """Tiles of a grid, side by side on a canvas, pasted in one of several styles."""
    tiles = _tiles(size, integer(numbers[0], 2, 8))
    begin = _first(numbers, 64)
    chosen = [tiles[(begin + n) % len(tiles)] for n in range(min(MAX_TILES, len(tiles)))]
    side = integer(numbers[2], 4, 64)
    across = 4 if len(chosen) > 4 else 2
    down = -(-len(chosen) // across)
    boxes = f"boxes = {chosen!r}"
    where = f"x, y = n % {across} * {side}, n // {across} * {side}"
    canvas = {
        "paste": [
            f"c = Image.new('RGB', ({across * side}, {down * side}))",
            "for n, b in enumerate(boxes):",
            f"    {where}",
            f"    c.paste(image.crop(b).resize(({side}, {side})), (x, y))",
        ],
        "slices": [
            f"c = np.zeros(({down * side}, {across * side}, 3), np.uint8)",
            "a = np.array(image)",
            "for n, (x0, y0, x1, y1) in enumerate(boxes):",
            f"    {where}",
            f"    c[y:y + {side}, x:x + {side}] = cv2.resize(a[y0:y1, x0:x1], ({side}, {side}))",
        ],
        "stacks": [
            "a = np.array(image)",
            f"t = [cv2.resize(a[y0:y1, x0:x1], ({side}, {side})) for x0, y0, x1, y1 in boxes]",
            f"while len(t) < {across * down}: t.append(np.zeros_like(t[0]))",
            f"c = np.vstack([np.hstack(t[n:n + {across}]) for n in range(0, len(t), {across})])",
        ],
    }
    style = either(numbers[3], *canvas)
    places = tuple(
        Place(
            shifted(n % across * side, n // across * side)
            @ scaled(side / (b[2] - b[0]), side / (b[3] - b[1]))
            @ shifted(-b[0], -b[1]),
            b,
        )
        for n, b in enumerate(chosen)
    )
    kind = "pil" if style == "paste" else "array"
    return Draft([boxes, *canvas[style]], across * side, down * side, places, kind=kind, honest=False)


def blank(box: Box, size: tuple[int, int], numbers: tuple[float, ...]) -> Draft:
    """A canvas that shows nothing."""
    side = integer(numbers[0], 16, 224)
    shade = integer(numbers[1], 0, 255)
    line = f"c = Image.new('RGB', ({side}, {side}), ({shade}, {shade}, {shade}))"
    return Draft([line], side, side, (), honest=False)


def _tiles(size: tuple[int, int], count: int) -> list[Box]:
    xs, ys = (np.linspace(0, side, count + 1).astype(int).tolist() for side in size)
    return [(xs[i], ys[j], xs[i + 1], ys[j + 1]) for j in range(count) for i in range(count)]


def _first(numbers: tuple[float, ...], most: int) -> int:
    count = integer(numbers[0], 2, 6 if most == 36 else 8) ** 2
    return integer(numbers[1], 0, count - 1)


KNOWING: dict[str, Source] = {
    "target": target,
    "padded": padded,
    "nested": nested,
    "partly": partly,
    "wide": wide,
}
"""Sources that need to know where the target is."""
BLIND: dict[str, Source] = {
    "anywhere": anywhere,
    "everything": everything,
    "tile": tile,
    "sheet": sheet,
    "blank": blank,
}
"""Sources that are the same for every question."""
SOURCES = KNOWING | BLIND
