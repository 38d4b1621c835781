"""Asynchronous functions of a user's own parts that have not returned yet, for whoever reports them."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

PATIENCE = 300.0
"""Seconds that an asynchronous function may take before it is reported; ours. It may wait for a model that is
busy with others."""


class Wait:
    """A function that is being waited for.

    Args:
        part: (kind, name) of the part.
        within: The coroutine or asynchronous generator that the function returned.
        patience: Seconds after which it is reported.
    """

    def __init__(self, part: tuple[str, str], within: object, patience: float) -> None:
        self.part, self.patience = part, patience
        self.since = time.monotonic()
        self._within = within

    def frames(self) -> list[FrameType]:
        """The frames that are suspended, outermost first."""
        found: list[FrameType] = []
        within: Any = self._within
        while within is not None:
            if (frame := _of(within, "frame")) is not None:
                found.append(frame)
            within = _of(within, "await")
        return found


def _of(within: object, what: str) -> Any:
    """`cr_frame` of a coroutine, `ag_frame` of an asynchronous generator, or `…_await`; None: neither."""
    return getattr(within, f"cr_{what}", None) or getattr(within, f"ag_{what}", None)


_PENDING: dict[Wait, None] = {}


def pending() -> list[Wait]:
    """What is being waited for in this process, longest first; may be called from any thread."""
    return list(_PENDING)


@contextmanager
def waiting(part: tuple[str, str], within: object, patience: float = PATIENCE) -> Iterator[None]:
    """Note that what runs in the block waits for a part; arguments as for `Wait`."""
    wait = Wait(part, within, patience)
    _PENDING[wait] = None
    try:
        yield
    finally:
        del _PENDING[wait]
