"""How long everything stood still for something: the part of its time not overlapped by other work."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Seconds during which at least one of its `with` blocks was open and no `covered` block was.

    Conversations open blocks while they wait for the sandbox; the engine covers them while it generates,
    because then nothing is held up. Blocks may overlap.
    """

    def __init__(self) -> None:
        self._open = 0
        self._covers = 0
        self._began = 0.0
        self._seconds = 0.0

    def __enter__(self) -> None:
        self._change(blocks=1)

    def __exit__(self, *_error: object) -> None:
        self._change(blocks=-1)

    @contextmanager
    def covered(self) -> Iterator[None]:
        """Time inside this block does not count."""
        self._change(covers=1)
        try:
            yield
        finally:
            self._change(covers=-1)

    def take(self) -> float:
        """The seconds counted since the last call of this method."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds

    def _change(self, *, blocks: int = 0, covers: int = 0) -> None:
        now = time.monotonic()
        if self._open and not self._covers:
            self._seconds += now - self._began
        self._began = now
        self._open += blocks
        self._covers += covers
