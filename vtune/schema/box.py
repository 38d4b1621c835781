"""Boxes: xyxy in pixels of a stored picture, and the little geometry that everything shares."""

from math import isfinite

Box = tuple[float, float, float, float]
"""(x0, y0, x1, y1) in pixels of the stored image; x0 < x1 and y0 < y1."""


def proper(box: Box) -> bool:
    """Whether a box is finite and not empty: x0 < x1 and y0 < y1."""
    x0, y0, x1, y1 = box
    return all(map(isfinite, box)) and x0 < x1 and y0 < y1


def area(box: Box) -> float:
    """Area in square pixels, 0 for an empty box."""
    return max(box[2] - box[0], 0.0) * max(box[3] - box[1], 0.0)


def intersect(a: Box, b: Box) -> Box:
    """The box that two boxes share; its area is 0 if they do not overlap."""
    return (max(a[0], b[0]), max(a[1], b[1]), min(a[2], b[2]), min(a[3], b[3]))


def intersection(a: Box, b: Box) -> float:
    """Shared area in square pixels."""
    return area(intersect(a, b))


def iou(a: Box, b: Box) -> float:
    """Intersection over union, in [0, 1]; 0 if both boxes are empty."""
    shared = intersection(a, b)
    union = area(a) + area(b) - shared
    return shared / union if union > 0 else 0.0


def clamp(box: Box, width: int, height: int) -> Box:
    """The part of a box that lies inside a picture of `width` x `height` pixels."""
    x0, y0, x1, y1 = box
    return (
        float(min(max(x0, 0), width)),
        float(min(max(y0, 0), height)),
        float(min(max(x1, 0), width)),
        float(min(max(y1, 0), height)),
    )
