"""Interpreter settings for commands in which many tasks share the event loop."""

import functools
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

TURN_SECONDS = 0.0005
"""How long a thread keeps the interpreter while another waits for it; ours, a tenth of Python's default. The
event loop gives it up with each file that it reads, and then competes with threads that decode pictures
(tests/bench/host_step.py)."""


@contextmanager
def responsive() -> Iterator[None]:
    """Within the block, neither the garbage collector nor other threads hold up the event loop for long."""
    turn = sys.getswitchinterval()
    sys.setswitchinterval(TURN_SECONDS)
    try:
        with frozen_heap():
            yield
    finally:
        sys.setswitchinterval(turn)


@contextmanager
def frozen_heap() -> Iterator[None]:
    """Within the block, garbage collection only examines objects created in it.

    Traversing torch, transformers and a model (386,000 objects) stops every thread for 0.25 s, again and
    again while conversations run. A heap that is already frozen is left alone. After the block, everything
    can be collected again: a command may load several models, one after the other.
    """
    global _frozen
    if _frozen or _frozen_by_others():
        yield
        return
    gc.freeze()
    _frozen = True
    try:
        yield
    finally:
        gc.unfreeze()
        _frozen = False


_frozen = False
"""Whether a block of `frozen_heap` is open."""


@functools.cache
def _frozen_by_others() -> bool:
    """Whether the caller has frozen the heap. Asked only once: counting a million objects takes 40 ms."""
    return gc.get_freeze_count() > 0
