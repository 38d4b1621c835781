"""The garbage collector passes over what is loaded while a command runs."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def frozen_heap() -> Iterator[None]:
    """Until the block ends, garbage is looked for only among what is made within it.

    To look through torch, transformers and a model (386,000 objects) stops every thread for 0.25 s, again and
    again while conversations go on. A heap that is frozen already is left as it is. After the block all
    can be collected again: a command may load several models, one after the other.
    """
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
