"""Maps from a picture to what it was made from, and where they take a box."""

from typing import Any

import numpy as np

Box = tuple[float, float, float, float]
"""xyxy in pixels of the input image."""
Size = tuple[int, int]
"""Width, height."""
Matrix = tuple[float, ...]
"""Maps a picture to what it was made from. Six numbers (a, b, c, d, e, f): X = a x + b y + c,
Y = d x + e y + f. Nine: the rows of a homography, for a change of perspective."""
IDENTITY: Matrix = (1, 0, 0, 0, 1, 0)


def compose(outer: Matrix, inner: Matrix) -> Matrix:
    """First `inner`, then `outer`."""
    if len(outer) == 6 and len(inner) == 6:
        a, b, c, d, e, f = outer
        p, q, r, s, t, u = inner
        return (
            a * p + b * s,
            a * q + b * t,
            a * r + b * u + c,
            d * p + e * s,
            d * q + e * t,
            d * r + e * u + f,
        )
    return tuple(float(value) for value in (_square(outer) @ _square(inner)).ravel())


def inverted(matrix: Matrix) -> Matrix | None:
    """The inverse map; None if there is none."""
    if len(matrix) == 6:
        a, b, c, d, e, f = matrix
        det = a * e - b * d
        if abs(det) < 1e-12:
            return None
        return (e / det, -b / det, (b * f - c * e) / det, -d / det, a / det, (c * d - a * f) / det)
    square = _square(matrix)
    if abs(np.linalg.det(square)) < 1e-12:
        return None
    return tuple(float(value) for value in np.linalg.inv(square).ravel())


def mapped_box(matrix: Matrix, box: Box) -> Box | None:
    """The bounding box of a mapped box; None if the horizon of a perspective runs through it."""
    x0, y0, x1, y1 = box
    if len(matrix) == 6:
        a, b, c, d, e, f = matrix
        if not b and not d:
            left, right, top, bottom = a * x0 + c, a * x1 + c, e * y0 + f, e * y1 + f
            return (min(left, right), min(top, bottom), max(left, right), max(top, bottom))
        xs = [a * x + b * y + c for x in (x0, x1) for y in (y0, y1)]
        ys = [d * x + e * y + f for x in (x0, x1) for y in (y0, y1)]
        return (min(xs), min(ys), max(xs), max(ys))
    corners = _square(matrix) @ np.array([(x, y, 1) for x in (x0, x1) for y in (y0, y1)], float).T
    if corners[2].min() * corners[2].max() <= 0:
        return None
    px, py = (corners[:2] / corners[2]).tolist()
    return (min(px), min(py), max(px), max(py))


def shown_box(matrix: Matrix, size: Size, box: Box) -> Box | None:
    """The bounding box of what a picture shows of a box.

    The bounding box of a whole turned picture would be too large: the picture shows nothing beyond the box's
    edge, nor next to its own slanted sides.

    Args:
        matrix: Maps pixels of the picture to the coordinates of the box.
        size: Size of the picture.
        box: All that can be shown.

    Returns:
        None if nothing is shown, or the horizon of a perspective runs through the picture.
    """
    spread = mapped_box(matrix, (0, 0, *size))
    if spread is None:
        return None
    if len(matrix) == 6 and not matrix[1] and not matrix[3]:
        x0, y0, x1, y1 = spread
        found = (max(x0, box[0]), max(y0, box[1]), min(x1, box[2]), min(y1, box[3]))
        return found if found[0] < found[2] and found[1] < found[3] else None
    corners = [_at(matrix, x, y) for x, y in ((0, 0), (size[0], 0), size, (0, size[1]))]
    for axis, sign, edge in ((0, 1, box[0]), (1, 1, box[1]), (0, -1, box[2]), (1, -1, box[3])):
        corners = _cut(corners, axis, sign, edge)
    if not corners:
        return None
    xs, ys = zip(*corners, strict=True)
    return (min(xs), min(ys), max(xs), max(ys))


def _at(matrix: Matrix, x: float, y: float) -> tuple[float, float]:
    """Where the map takes a point."""
    a, b, c, d, e, f, *rest = matrix
    depth = rest[0] * x + rest[1] * y + rest[2] if rest else 1.0
    return (a * x + b * y + c) / depth, (d * x + e * y + f) / depth


def _cut(corners: list[tuple[float, float]], axis: int, sign: int, edge: float) -> list[tuple[float, float]]:
    """The part of a convex polygon above an edge along an axis, or below it if `sign` is -1."""
    kept = []
    for here, there in zip(corners, corners[1:] + corners[:1], strict=True):
        inside = sign * (here[axis] - edge) >= 0
        if inside:
            kept.append(here)
        if inside != (sign * (there[axis] - edge) >= 0):
            share = (edge - here[axis]) / (there[axis] - here[axis])
            kept.append((here[0] + share * (there[0] - here[0]), here[1] + share * (there[1] - here[1])))
    return kept


def _square(matrix: Matrix) -> Any:
    return np.array(matrix if len(matrix) == 9 else (*matrix, 0, 0, 1), float).reshape(3, 3)
