"""Makes forks of the fork server cheap: what libraries would do in every fork is done once, ahead."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def hooks_run_once() -> Iterator[None]:
    """Run the fork hooks of libraries imported in this block once, at its end, instead of in each child.

    `threading` and `logging` replace their locks, which cannot be held if only one thread forks; `random`
    draws a new seed, though a session sets its own; matplotlib releases its fonts, one by one.
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
