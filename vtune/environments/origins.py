"""Regions of regions: traces what a tool cut from a tool's picture back to the question's picture."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from vtune.looks.geometry import Map, around, corners, map_of, onto
from vtune.sandbox import ShownCrop
from vtune.schema.pixels import size_of


class Origins:
    """Locates pictures returned by tools within earlier pictures of a conversation, if the tools report it.

    Only for tools that we run ourselves: claims by code are checked against the pixels instead.
    """

    def __init__(self) -> None:
        self._ways: dict[int, tuple[int, Map]] = {}
        """Index of a returned picture -> the picture of which it shows a region, and the map to it."""

    def placed(self, crops: Sequence[ShownCrop], images: Sequence[bytes]) -> tuple[ShownCrop, ...]:
        """The regions of a call; regions of returned pictures are mapped to the pictures that those show.

        Args:
            crops: As given by the tool.
            images: Encoded pictures that it returned.
        """
        return tuple(self._placed(crop, images) for crop in crops)

    def take(self, first: int, crops: Sequence[ShownCrop], images: Sequence[bytes]) -> None:
        """Record where the pictures of a call come from; a picture that shows several regions is skipped.

        Args:
            first: Index of the call's first picture among the trajectory's images.
            crops: The call's regions, placed.
            images: Encoded, as returned.
        """
        for place, data in enumerate(images):
            shown = [crop for crop in crops if crop.shown == place]
            if len(shown) == 1 and (way := _way(shown[0], data)) is not None:
                self._ways[first + place] = (shown[0].image, way)

    def _placed(self, crop: ShownCrop, images: Sequence[bytes]) -> ShownCrop:
        if crop.image not in self._ways:
            return crop
        image, onward = self._ways[crop.image]
        there = corners(crop.bbox, onward)
        if there is None:
            return crop
        found = replace(crop, image=image, bbox=around(there))
        if crop.shown is None:
            return found
        data = images[crop.shown]
        way = _way(crop, data)
        if way is None:
            return crop
        whole = onward @ way
        upright = np.allclose(whole, onto(found.bbox, size_of(data)))
        return replace(found, matrix=None if upright else _numbers(whole))


def _way(crop: ShownCrop, data: bytes) -> Map | None:
    """From pixels of a returned picture to those of the picture of which it shows a region."""
    return onto(crop.bbox, size_of(data)) if crop.matrix is None else map_of(crop.matrix)


def _numbers(way: Map) -> tuple[float, ...]:
    """Six numbers, or nine if it is not affine."""
    square = way / way[2, 2]
    affine = np.allclose(square[2], (0, 0, 1))
    return tuple(float(number) for number in (square[:2] if affine else square).ravel())
