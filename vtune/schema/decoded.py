"""Encoded pictures as arrays, each decoded once: all rollouts and calls of a group share their inputs."""

import numpy as np
from numpy.typing import NDArray

from vtune.schema.pixels import decode_picture
from vtune.schema.remembered import Remembered

Pixels = NDArray[np.uint8]
"""Shape (h, w, 3)."""

KEPT = 256 << 20
"""Bytes of decoded pictures that are cached; ten 4K pictures. Ours."""

_pictures: Remembered[bytes, Pixels] = Remembered(KEPT, lambda data, pixels: len(data) + pixels.nbytes)


def decoded(data: bytes) -> Pixels:
    """The pixels of an encoded picture, RGB, as the policy's processor gets them; read-only.

    Raises:
        DataError: If it is not a picture.
    """
    return _pictures.get(data, lambda: np.asarray(decode_picture(data)))


def at_hand(data: bytes) -> Pixels | None:
    """The same, but only if the picture is in the cache."""
    return _pictures.at_hand(data)


def keep(data: bytes, pixels: Pixels) -> None:
    """Cache pixels that are already decoded."""
    _pictures.get(data, lambda: pixels)
