"""Encoded pictures as the policy sees them."""

from dataclasses import replace

from vtune.looks.view import View, shrunk
from vtune.schema.decoded import Pixels, decoded
from vtune.schema.remembered import Remembered

SHRUNK = 64 << 20
"""Bytes of shrunk pictures that are cached; ours, in addition to `vtune.schema.decoded.KEPT`."""

_shrunk: Remembered[tuple[bytes, tuple[int, int]], Pixels] = Remembered(
    SHRUNK, lambda key, pixels: len(key[0]) + pixels.nbytes
)


def viewed(data: bytes, seen: tuple[int, int] | None) -> View:
    """An encoded picture as the policy sees it.

    Args:
        data: The picture.
        seen: Width and height that the policy's processor gives it; None for its own size.

    Raises:
        DataError: If it is not a picture.
    """
    pixels = decoded(data)
    view = View(pixels, seen or (pixels.shape[1], pixels.shape[0]))
    if min(view.scale) >= 1:
        return view
    return replace(view, small=_shrunk.get((data, view.seen), lambda: shrunk(pixels, view.seen)))
