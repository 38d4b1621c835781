"""Encoded pictures as arrays, each decoded once: a group's rollouts and all calls share their inputs."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from vtune.looks.agreement import Pixels
from vtune.looks.view import View, shrunk
from vtune.schema.pixels import decode_picture

KEPT = 256 << 20
"""Bytes of decoded pictures that are remembered; ten of 4K. Ours."""

_kept: OrderedDict[tuple[bytes, tuple[int, int] | None], Pixels] = OrderedDict()
_turn = threading.Lock()


def decoded(data: bytes) -> Pixels:
    """The pixels of an encoded picture, RGB, as the policy's processor gets them; not to be written to.

    Raises:
        DataError: If it is not a picture.
    """
    return _remembered((data, None), lambda: np.asarray(decode_picture(data)))


def viewed(data: bytes, seen: tuple[int, int] | None) -> View:
    """An encoded picture as the policy sees it.

    Args:
        data: The picture.
        seen: Width and height that the policy's processor gives it; None for its own.

    Raises:
        DataError: If it is not a picture.
    """
    pixels = decoded(data)
    view = View(pixels, seen or (pixels.shape[1], pixels.shape[0]))
    if min(view.scale) >= 1:
        return view
    return replace(view, small=_remembered((data, view.seen), lambda: shrunk(pixels, view.seen)))


def _remembered(key: tuple[bytes, tuple[int, int] | None], make: Callable[[], Pixels]) -> Pixels:
    with _turn:
        found = _kept.get(key)
        if found is not None:
            _kept.move_to_end(key)
            return found
    found = make()
    with _turn:
        _kept[key] = found
        room = KEPT - sum(pixels.nbytes for pixels in _kept.values())
        while room < 0 and len(_kept) > 1:
            room += _kept.popitem(last=False)[1].nbytes
    return found
