"""Maps from a picture to what it was made from, and where they take a box."""

from typing import Any

import numpy as np

Box = tuple[float, float, float, float]
"""xyxy in pixels of the input image."""
Size = tuple[int, int]
"""Width, height."""
Matrix = tuple[float, ...]
"""From a picture to what it was made from. Six numbers (a, b, c, d, e, f): X = a x + b y + c,
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
    """The way back, None where there is none."""
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
    """The box around a mapped box; None where the horizon of a perspective runs through it."""
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


def _square(matrix: Matrix) -> Any:
    return np.array(matrix if len(matrix) == 9 else (*matrix, 0, 0, 1), float).reshape(3, 3)
