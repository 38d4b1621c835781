"""How a `vtune` process ends: on Ctrl-C, on SIGTERM, and once it has loaded torch."""

import atexit
import gc
import io
import logging
import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import FrameType

from vtune.errors import WITHIN, VtuneError
from vtune.metrics.log import read_metrics

AGAIN_S = 0.02
"""Seconds after which a lost Ctrl-C is sent again (ours): before anybody has pressed twice."""


class Resumable:
    """Where the command works, if it is one that `--resume` continues."""

    def __init__(self) -> None:
        self.folder: Path | None = None

    @property
    def begun(self) -> bool:
        """Whether there is anything to continue: it may have been interrupted while data are checked."""
        if self.folder is None or not self.folder.is_dir():
            return False
        return any(file.name not in (".lock", "logs") for file in self.folder.iterdir())

    @property
    def lost_steps(self) -> int | None:
        """Steps that `--resume` does again from the first; None where it continues from a checkpoint.

        Also None of what is no single run, as a sweep.
        """
        if self.folder is None or not (self.folder / "recipe.yaml").is_file():
            return None
        if any((self.folder / "checkpoints").glob("step-*/manifest.json")):
            return None
        try:
            return len({line.step for line in read_metrics(self.folder / "metrics.jsonl")})
        except VtuneError:
            return 0


RESUMABLE = Resumable()
"""Of this process, for what is said when it is interrupted."""


class Ending:
    """Ends a process that has loaded torch with its code, and does without the interpreter's teardown.

    That takes a second and a half of a processor, for libraries that end with the process. And where it has
    a process group, gloo's threads may hold tensors of the last collective for a moment longer than the one
    that waited for it: if the interpreter is being torn down by then, freeing one aborts the process
    (pytorch/pytorch#190489, "terminate called without an active exception"), and one that had done all its
    work would end as if it had crashed. Destroying the group does not help while anything refers to it. By
    this end, other threads have ended, and what was registered with `atexit` after this has run.
    """

    def __init__(self) -> None:
        self.code: int | None = None
        """What the process ends with; None: as the interpreter says."""
        atexit.register(self._now)

    def _now(self) -> None:
        if self.code is None or "torch" not in sys.modules:
            return
        logging.shutdown()  # registered before this, and so not yet run
        for stream in filter(None, (sys.stdout, sys.stderr)):  # None where it was closed before the start
            stream.flush()
        _flush_files()
        os._exit(self.code)


def _flush_files() -> None:
    """Write out what files of a user's own parts still hold, as the teardown would."""
    for found in gc.get_objects():
        # Asked by its type: of some objects of torch the class itself is computed, with a warning.
        if issubclass(type(found), io.TextIOWrapper | io.BufferedWriter) and not found.closed:
            with suppress(OSError, ValueError):  # a pipe that nobody reads any more
                found.flush()


def heed_sigint() -> None:
    """Hear the Ctrl-C that the watcher of a rank holds back while Python starts."""
    if WITHIN in os.environ:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def ignore_sigint() -> None:
    """Ignore Ctrl-C from here on in a rank, which is ending: its watcher sends it where another has failed.

    Python would add a traceback of its own teardown to what the rank has said.
    """
    if WITHIN in os.environ:
        # A mask would be that of this thread alone.
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def heed_sigterm() -> None:
    """Let SIGTERM end this process as Ctrl-C does: what is half written is removed, and the status is 130.

    Verbs that do something else meanwhile, such as writing a checkpoint, take it over for that long. Where
    a parent has it ignored, it stays so. One of several processes ends at once, as its watcher expects: it
    may wait for the others where no Python runs.
    """
    alone = os.environ.get("WORLD_SIZE", "1") == "1"
    if alone and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _as_ctrl_c)


class LostInterrupts:
    """Within it, a Ctrl-C that Python has dropped is sent again.

    Where it arrives in a finalizer, it is reported as "Exception ignored" and the command goes on. That is
    no rare moment: garbage of imports is collected for half a second, and finalizers are the first to run.
    """

    def __init__(self) -> None:
        self._timer: threading.Timer | None = None

    def __enter__(self) -> None:
        sys.unraisablehook = self._dropped

    def __exit__(self, *_: object) -> None:
        # What ends with the interpreter, such as the last upload of a tracker, may be interrupted once.
        sys.unraisablehook = sys.__unraisablehook__
        if self._timer is not None:
            self._timer.cancel()

    def _dropped(self, lost: "sys.UnraisableHookArgs") -> None:
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            sys.__unraisablehook__(lost)
            return
        number = signal.SIGINT
        if not callable(signal.getsignal(number)):  # then it was SIGTERM, which is heard once
            number = signal.SIGTERM
            signal.signal(number, _as_ctrl_c)
        if self._timer is not None:
            self._timer.cancel()
        # From here it would be raised in this function, and be lost as the first was.
        self._timer = threading.Timer(AGAIN_S, os.kill, (os.getpid(), number))
        self._timer.daemon = True
        self._timer.start()


def _as_ctrl_c(number: int, frame: FrameType | None) -> None:
    # Schedulers, and `timeout`, say it more than once: the second must not cut short what the first began.
    # A function and not SIG_IGN, which a process that is started meanwhile would inherit.
    signal.signal(number, lambda *_: None)
    handler = signal.getsignal(signal.SIGINT)
    # An event loop has a handler of its own, which cancels what it runs. In the background of a shell Ctrl-C
    # is ignored, and nobody would hear of it.
    if not callable(handler):
        raise KeyboardInterrupt
    handler(signal.SIGINT, frame)
