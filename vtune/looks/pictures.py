"""Encoded pictures as arrays, each decoded once: a group's rollouts and all calls share their inputs."""

import threading
from collections import OrderedDict

import numpy as np

from vtune.looks.agreement import Pixels
from vtune.schema.pixels import decode_picture

KEPT = 256 << 20
"""Bytes of decoded pictures that are remembered; ten of 4K. Ours."""

_kept: OrderedDict[bytes, Pixels] = OrderedDict()
_turn = threading.Lock()


def decoded(data: bytes) -> Pixels:
    """The pixels of an encoded picture, RGB, as the policy's processor gets them; not to be written to.

    Raises:
        DataError: If it is not a picture.
    """
    with _turn:
        found = _kept.get(data)
        if found is not None:
            _kept.move_to_end(data)
            return found
    found = np.asarray(decode_picture(data))
    with _turn:
        _kept[data] = found
        room = KEPT - sum(pixels.nbytes for pixels in _kept.values())
        while room < 0 and len(_kept) > 1:
            room += _kept.popitem(last=False)[1].nbytes
    return found
