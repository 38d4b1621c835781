"""What picture searches take, and what they return."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import imagehash
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vtune.schema.pixels import decode_picture

Vector = NDArray[np.float32]

GRID, ANGLES = 4, 8
"""Parameters of `layout`: cells per side, and edge directions per cell; ours."""

EDGES_WEIGHT = 0.5
"""Weight of edges, relative to colours, in `layout`; ours."""


@dataclass(frozen=True, slots=True)
class Match:
    """A picture that looks similar."""

    title: str
    text: str
    score: float
    """1 for the same picture."""
    thumbnail: bytes | None
    """The encoded thumbnail; None if there is none."""
    source: str = ""
    """Its address on the web; empty if it comes from an index."""


class PictureSearcher(Protocol):
    """Anything that finds pictures that look similar."""

    async def search(self, picture: bytes, top_k: int) -> list[Match]:
        """At most `top_k` matches, best first; [] if there are none.

        Raises:
            ServiceError: If the search fails.
        """
        ...

    async def aclose(self) -> None:
        """Close everything that was opened."""
        ...


class PictureEncoder(Protocol):
    """Turns pictures into vectors whose inner product measures how similar they are."""

    width: int
    facts: Mapping[str, Any]
    """Must include `model` and a `fingerprint`: vectors are comparable only if the latter is the same."""

    def picture(self, picture: Image.Image) -> Vector:
        """A vector of length 1, shape (width,)."""
        ...


def decoded(data: bytes) -> Image.Image:
    """The picture in RGB.

    Raises:
        DataError: If it is not a picture, or breaks a limit of `vtune.schema.pixels`.
    """
    return decode_picture(data)


def perceptual_hash(picture: Image.Image) -> np.uint64:
    """64 bits that a resize or re-encoding hardly changes (Zauner 2010, pHash)."""
    return np.uint64(int(str(imagehash.phash(picture)), 16))


def layout(picture: Image.Image) -> Vector:
    """Which colours and edges a picture has where: what an index compares if it has no model.

    Returns:
        float32, shape (GRID² · (3 + ANGLES),), of length 1.
    """
    side = GRID * 16
    colours = np.asarray(picture.resize((side, side), Image.Resampling.BOX), np.float64) / 255
    cells = colours.reshape(GRID, 16, GRID, 16, 3).mean(axis=(1, 3))
    down, right = np.gradient(colours.mean(axis=2))
    angle = ((np.arctan2(down, right) / np.pi + 1) / 2 * ANGLES).astype(int) % ANGLES
    row, column = np.divmod(np.arange(side * side), side)
    place = (row // 16 * GRID + column // 16) * ANGLES + angle.ravel()
    edges = np.bincount(place, np.hypot(down, right).ravel(), minlength=GRID * GRID * ANGLES)
    parts = [
        _unit((cells - 0.5).ravel()) * np.sqrt(1 - EDGES_WEIGHT),
        _unit(edges) * np.sqrt(EDGES_WEIGHT),
    ]
    return _unit(np.concatenate(parts)).astype(np.float32)


def _unit(vector: NDArray[Any]) -> NDArray[Any]:
    length = float(np.linalg.norm(vector))
    return vector / length if length > 0 else vector
