"""Operations that preserve what a picture shows: tones, sizes, rotations, frames, edges, added marks."""

import math

import numpy as np

from vtune.sandbox.attacks.programs.draft import (
    Draft,
    Map,
    Operation,
    either,
    integer,
    scaled,
    shifted,
    within,
)
from vtune.sandbox.attacks.programs.tones import GREYS, TONES, to_grey, tone

MOST = 1400
"""Pixels per side beyond which nothing is enlarged."""


def enlarge(draft: Draft, numbers: tuple[float, ...]) -> None:
    """By a factor of up to four, with PIL."""
    draft.pil()
    by = min(within(numbers[0], 1.2, 4.0), MOST / max(draft.width, draft.height))
    w, h = max(1, round(draft.width * by)), max(1, round(draft.height * by))
    draft.add(f"c = c.resize(({w}, {h}), {either(numbers[1], *_FILTERS)})")
    draft.move(scaled(w / draft.width, h / draft.height), w, h)


def reduce_a_little(draft: Draft, numbers: tuple[float, ...]) -> None:
    """To nine tenths of the size or more."""
    draft.pil()
    by = within(numbers[0], 0.9, 1.0)
    w, h = max(1, round(draft.width * by)), max(1, round(draft.height * by))
    draft.add(f"c = c.resize(({w}, {h}), Image.LANCZOS)")
    draft.move(scaled(w / draft.width, h / draft.height), w, h)


def enlarge_cv(draft: Draft, numbers: tuple[float, ...]) -> None:
    """By a factor of two or three, with OpenCV."""
    draft.array()
    by = integer(numbers[0], 2, 3)
    if by * max(draft.width, draft.height) > MOST:
        return
    kind = either(numbers[1], "INTER_CUBIC", "INTER_LINEAR", "INTER_NEAREST", "INTER_LANCZOS4")
    draft.add(f"c = cv2.resize(c, None, fx={by}, fy={by}, interpolation=cv2.{kind})")
    draft.move(scaled(by, by), draft.width * by, draft.height * by)


def repeat(draft: Draft, numbers: tuple[float, ...]) -> None:
    """Repeat each pixel two or three times, with numpy."""
    draft.array()
    by = integer(numbers[0], 2, 3)
    if by * max(draft.width, draft.height) > MOST:
        return
    draft.add(f"c = np.repeat(np.repeat(c, {by}, axis=0), {by}, axis=1)")
    draft.move(scaled(by, by), draft.width * by, draft.height * by)


def thumbnail(draft: Draft, numbers: tuple[float, ...]) -> None:
    """Limited to a side of 100 to 400 pixels."""
    draft.pil()
    side = integer(numbers[0], 100, 400)
    draft.add(f"c.thumbnail(({side}, {side}))")
    if max(draft.width, draft.height) > side:
        by = side / max(draft.width, draft.height)
        w, h = max(1, round(draft.width * by)), max(1, round(draft.height * by))
        draft.move(scaled(w / draft.width, h / draft.height), w, h)


def _turned(draft: Draft, quarters: int) -> None:
    for _ in range(quarters):
        w = draft.width
        draft.move(np.array([[0, 1.0, 0], [-1, 0, w], [0, 0, 1]]), draft.height, w)


def turn_pil(draft: Draft, numbers: tuple[float, ...]) -> None:
    """By quarter turns counter-clockwise, with PIL."""
    draft.pil()
    quarters = integer(numbers[0], 1, 3)
    names = {1: "ROTATE_90", 2: "ROTATE_180", 3: "ROTATE_270"}
    draft.add(
        f"c = c.transpose(Image.{names[quarters]})"
        if numbers[1] < 0.5
        else f"c = c.rotate({90 * quarters}, expand=True)"
    )
    _turned(draft, quarters)


def turn_np(draft: Draft, numbers: tuple[float, ...]) -> None:
    """By quarter turns, with numpy."""
    draft.array()
    quarters = integer(numbers[0], 1, 3)
    draft.add(f"c = np.ascontiguousarray(np.rot90(c, {quarters}))")
    _turned(draft, quarters)


def turn_cv(draft: Draft, numbers: tuple[float, ...]) -> None:
    """By a quarter turn clockwise, with OpenCV."""
    draft.array()
    draft.add("c = cv2.rotate(c, cv2.ROTATE_90_CLOCKWISE)")
    _turned(draft, 3)


def mirror(draft: Draft, numbers: tuple[float, ...]) -> None:
    """Swap left and right."""
    if numbers[0] < 0.5:
        draft.pil()
        draft.add("c = ImageOps.mirror(c)")
    else:
        draft.array()
        draft.add("c = np.ascontiguousarray(c[:, ::-1])")
    draft.move(np.array([[-1.0, 0, draft.width], [0, 1, 0], [0, 0, 1]]), draft.width, draft.height)


def flip(draft: Draft, numbers: tuple[float, ...]) -> None:
    """Swap top and bottom."""
    if numbers[0] < 0.5:
        draft.pil()
        draft.add("c = c.transpose(Image.FLIP_TOP_BOTTOM)")
    else:
        draft.array()
        draft.add("c = cv2.flip(c, 0)")
    draft.move(np.array([[1.0, 0, 0], [0, -1, draft.height], [0, 0, 1]]), draft.width, draft.height)


def _rotation(width: int, height: int, degrees: float) -> Map:
    """Counter-clockwise about the centre, as seen in the picture."""
    a = math.radians(degrees)
    about = shifted(width / 2, height / 2)
    turn = np.array([[math.cos(a), math.sin(a), 0], [-math.sin(a), math.cos(a), 0], [0, 0, 1]])
    matrix: Map = about @ turn @ shifted(-width / 2, -height / 2)
    return matrix


def tilt(draft: Draft, numbers: tuple[float, ...]) -> None:
    """Up to 12 degrees, with PIL."""
    draft.pil(colour=True)
    degrees = round(within(numbers[0], -12, 12))
    draft.add(f"c = c.rotate({degrees}, resample=Image.BICUBIC)")
    draft.move(_rotation(draft.width, draft.height, degrees), draft.width, draft.height)


def tilt_cv(draft: Draft, numbers: tuple[float, ...]) -> None:
    """Up to 10 degrees, with an affine warp of OpenCV."""
    draft.array()
    degrees = round(within(numbers[0], -10, 10))
    w, h = draft.width, draft.height
    draft.add(
        f"m = cv2.getRotationMatrix2D(({w / 2 - 0.5}, {h / 2 - 0.5}), {degrees}, 1.0)",
        f"c = cv2.warpAffine(c, m, ({w}, {h}), flags=cv2.INTER_CUBIC)",
    )
    draft.move(_rotation(w, h, degrees), w, h)


def perspective(draft: Draft, numbers: tuple[float, ...]) -> None:
    """A mild one, as in a photograph of a page taken from the side."""
    draft.array()
    w, h = draft.width, draft.height
    a, b = (within(n, 0, 0.06) for n in numbers[:2])
    corners = np.array([[0, 0], [w, h * a], [w * (1 - b), h], [0, h * (1 - a)]])
    matrix = _homography(np.array([[0, 0], [w, 0], [w, h], [0, h]], float), corners)
    half = np.array([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]])
    pixels = np.linalg.inv(half) @ matrix @ half
    draft.add(f"m = np.array({pixels.round(9).tolist()})", f"c = cv2.warpPerspective(c, m, ({w}, {h}))")
    draft.move(matrix, w, h)


def _homography(source: Map, goal: Map) -> Map:
    rows = []
    for (x, y), (u, v) in zip(source, goal, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
    return np.append(np.linalg.solve(np.array(rows), goal.ravel()), 1.0).reshape(3, 3)


def border(draft: Draft, numbers: tuple[float, ...]) -> None:
    """A frame of a single colour."""
    draft.pil(colour=True)
    wide = integer(numbers[0], 2, max(2, min(draft.width, draft.height) // 8))
    colour = either(numbers[1], "white", "black", "red", "grey")
    draft.add(f"c = ImageOps.expand(c, border={wide}, fill={colour!r})")
    draft.move(shifted(wide, wide), draft.width + 2 * wide, draft.height + 2 * wide)


def border_cv(draft: Draft, numbers: tuple[float, ...]) -> None:
    """A frame made with OpenCV, of a single colour or mirrored."""
    draft.array(colour=True)
    wide = integer(numbers[0], 2, max(2, min(draft.width, draft.height) // 8))
    kind = either(numbers[1], "BORDER_CONSTANT", "BORDER_REFLECT", "BORDER_REPLICATE")
    draft.add(f"c = cv2.copyMakeBorder(c, {wide}, {wide}, {wide}, {wide}, cv2.{kind})")
    draft.move(shifted(wide, wide), draft.width + 2 * wide, draft.height + 2 * wide)


def letterbox(draft: Draft, numbers: tuple[float, ...]) -> None:
    """As large as it fits on a square canvas."""
    draft.pil(colour=True)
    side = integer(numbers[0], 112, 512)
    by = side / max(draft.width, draft.height)
    w, h = max(1, round(draft.width * by)), max(1, round(draft.height * by))
    x, y = (side - w) // 2, (side - h) // 2
    draft.add(
        f"canvas = Image.new('RGB', ({side}, {side}), (114, 114, 114))",
        f"canvas.paste(c.resize(({w}, {h}), Image.BICUBIC), ({x}, {y}))",
        "c = canvas",
    )
    draft.move(shifted(x, y) @ scaled(w / draft.width, h / draft.height), side, side)


def outline(draft: Draft, numbers: tuple[float, ...]) -> None:
    """A box drawn along the edge."""
    if numbers[1] < 0.5:
        draft.pil(colour=True)
        draft.add(
            f"ImageDraw.Draw(c).rectangle((0, 0, {draft.width - 1}, {draft.height - 1}), outline='red')"
        )
    else:
        draft.array(colour=True)
        draft.add(
            "c = np.ascontiguousarray(c)",
            f"cv2.rectangle(c, (0, 0), ({draft.width - 1}, {draft.height - 1}), (255, 0, 0), 1)",
        )


def caption(draft: Draft, numbers: tuple[float, ...]) -> None:
    """A line of text above the picture."""
    draft.pil(colour=True)
    room = 14
    draft.add(
        f"canvas = Image.new('RGB', ({draft.width}, {draft.height + room}), 'black')",
        f"canvas.paste(c, (0, {room}))",
        f"ImageDraw.Draw(canvas).text((2, 1), {either(numbers[0], 'sign', 'region A', 'crop', 'zoom')!r})",
        "c = canvas",
    )
    draft.move(shifted(0, room), draft.width, draft.height + room)


def beside(draft: Draft, numbers: tuple[float, ...]) -> None:
    """The picture and a grey copy, side by side."""
    draft.array(colour=True)
    draft.add(
        "g = cv2.cvtColor(cv2.cvtColor(c, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)", "c = np.hstack([c, g])"
    )
    draft.move(np.eye(3), 2 * draft.width, draft.height)


def false_colours(draft: Draft, numbers: tuple[float, ...]) -> None:
    """A colour map of the brightness."""
    draft.array(grey=True)
    name = either(numbers[0], "JET", "VIRIDIS", "HSV", "BONE", "HOT", "INFERNO")
    draft.add(f"c = cv2.cvtColor(cv2.applyColorMap(c, cv2.COLORMAP_{name}), cv2.COLOR_BGR2RGB)")
    draft.grey = False


def trim(draft: Draft, numbers: tuple[float, ...]) -> None:
    """Cut two pixels off each side."""
    if min(draft.width, draft.height) < 20:
        return
    w, h = draft.width - 4, draft.height - 4
    if numbers[0] < 0.5:
        draft.pil()
        draft.add(f"c = c.crop((2, 2, {w + 2}, {h + 2}))")
    else:
        draft.array()
        draft.add(f"c = c[2:{h + 2}, 2:{w + 2}]")
    draft.move(shifted(-2, -2), w, h)


def keep(draft: Draft, numbers: tuple[float, ...]) -> None:
    """Copies, contiguous or not, that change nothing."""
    if numbers[0] < 0.5:
        draft.pil()
        draft.add(either(numbers[1], "c = c.copy()", "c = c.convert('RGB')", "c.load()"))
        draft.grey = draft.grey and not 1 / 3 <= numbers[1] < 2 / 3
    else:
        draft.array()
        draft.add(either(numbers[1], "c = c.copy()", "c = np.asarray(c)", "c = np.ascontiguousarray(c)"))


_FILTERS = ("Image.LANCZOS", "Image.BICUBIC", "Image.BILINEAR", "Image.NEAREST", "Image.Resampling.HAMMING")
HONEST: dict[str, Operation] = {
    **{name: tone(*facts) for name, facts in TONES.items()},
    **{name: to_grey(lines) for name, lines in GREYS.items()},
    **{
        operation.__name__: operation
        for operation in (
            enlarge,
            reduce_a_little,
            enlarge_cv,
            repeat,
            thumbnail,
            turn_pil,
            turn_np,
            turn_cv,
            mirror,
            flip,
            tilt,
            tilt_cv,
            perspective,
            border,
            border_cv,
            letterbox,
            outline,
            caption,
            beside,
            false_colours,
            trim,
            keep,
        )
    },
}
"""What a careful policy may do to a crop."""
