"""Pictures for a page: decoded behind limits and re-encoded, so that no bytes of a file reach a browser."""

import io
import threading

from vtune.errors import DataError
from vtune.runs.view.opened import Opened
from vtune.schema.pixels import decode_reduced
from vtune.view.document import picture_bytes

SMALL = 2**19
"""Pixels up to which a picture is sent losslessly (ours)."""
DECODERS = threading.Semaphore(2)
"""Pictures decoded at a time: the largest allowed one takes 200 MB (ours)."""


def page_picture(one: Opened, key: str, index: int, side: int) -> tuple[bytes, str]:
    """A picture of a trajectory, and its media type.

    Args:
        one: The place that holds the trajectory.
        key: Key of the trajectory.
        index: Index of the picture in it.
        side: Pixels of the longer side, at most.

    Raises:
        DataError: If there is no such picture, or it cannot be decoded.
    """
    record, file, _ = one.record(key)
    if not 0 <= index < len(record.images):
        raise DataError(f"{key} has no picture {index}")
    with DECODERS:
        decoded = decode_reduced(picture_bytes(record.images[index], file, one.place), side)
        decoded.thumbnail((side, side))
    out = io.BytesIO()
    small = decoded.width * decoded.height <= SMALL
    decoded.save(out, "PNG" if small else "JPEG", **({} if small else {"quality": 88}))
    return out.getvalue(), "image/png" if small else "image/jpeg"
