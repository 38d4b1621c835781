"""Makes forks of the fork server cheap: what libraries would do in every fork is done once, ahead."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def hooks_run_once() -> Iterator[None]:
    """What libraries that are imported in this block would do in each child is done once, at its end.

    `threading` and `logging` make their locks new, which nobody holds where only one thread forks; `random`
    draws a seed, though a session has its own; matplotlib lets go of its fonts, one by one.
    """
    hooks: list[Callable[[], object]] = []
    register = os.register_at_fork

    def keep(*, after_in_child: Callable[[], object] | None = None, **_: Callable[[], object] | None) -> None:
        if after_in_child is not None:
            hooks.append(after_in_child)

    os.register_at_fork = keep
    try:
        yield
    finally:
        os.register_at_fork = register
    for hook in hooks:
        hook()
