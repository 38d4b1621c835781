"""What a user's own part must not do to the process that it shares with the command: end it, or move it."""

import os
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

Paths = Callable[[], Collection[str]]
"""Returns the files that are loaded."""

STAY = "use full paths, or `with contextlib.chdir(…)`"
"""What to do instead of leaving the working folder."""

_OURS: set[int] = set()
"""The processes that have loaded files; not those that a file has forked."""
_exit, _chdir = os._exit, os.chdir


def guard(paths: Paths) -> None:
    """From here on, refuse what a file does to this process behind the command's back.

    Args:
        paths: Returns the files; what others call, such as a library, is left alone.
    """

    def leave(status: int) -> NoReturn:
        """`os._exit`: the command would seem to be done."""
        if _theirs(paths):
            raise RuntimeError(f"os._exit({status}) would end the whole command, and nothing would be said")
        _exit(status)

    def move(path: Any) -> None:
        """`os.chdir`: relative paths, such as the run folder's, would lead elsewhere, in threads too."""
        if _theirs(paths):
            raise RuntimeError(f"os.chdir({path!r:.60}) would move the whole command: {STAY}")
        _chdir(path)

    if os.getpid() not in _OURS:
        _OURS.add(os.getpid())
        os._exit, os.chdir = leave, move


def _theirs(paths: Paths) -> bool:
    """Whether the function that called ours was called by a user's file, in a process of ours."""
    return os.getpid() in _OURS and sys._getframe(2).f_code.co_filename in paths()


@contextmanager
def staying() -> Iterator[None]:
    """Within it, a user's file is called, which must not leave the process in another working folder.

    Raises:
        RuntimeError: If it did; the process is back in its folder.
    """
    before = now = _folder()
    try:
        yield
    finally:
        if before and (now := _folder()) != before:
            os.chdir(before)
    if now != before:
        raise RuntimeError(f"it changes the working folder to {now}: {STAY}")


def _folder() -> Path | None:
    """The working folder; None if it no longer exists."""
    try:
        return Path.cwd()
    except OSError:
        return None
