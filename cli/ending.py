"""How a `vtune` process ends: on Ctrl-C, on SIGTERM or SIGHUP, and once it has loaded torch."""

import atexit
import gc
import io
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType

from vtune.errors import WITHIN, VtuneError
from vtune.metrics.log import read_metrics
from vtune.signals import HANG_UP, orders_to_stop

THREADS_S = 5.0
"""Seconds that threads have to end before they are reported; ours."""
AGAIN_S = 0.02
"""Seconds after which a lost Ctrl-C is sent again (ours): before the user presses it again."""


class Resumable:
    """The folder of the command, if `--resume` can continue it."""

    def __init__(self) -> None:
        self.folder: Path | None = None

    @property
    def begun(self) -> bool:
        """Whether there is anything to continue: it may have been interrupted while checking data."""
        if self.folder is None or not self.folder.is_dir():
            return False
        return any(file.name not in (".lock", "logs") for file in self.folder.iterdir())

    @property
    def lost_steps(self) -> int | None:
        """Steps that `--resume` repeats from the start; None if it continues from a checkpoint.

        Also None for anything that is not a single run, such as a sweep.
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
"""The one for this process, used by the message on interruption."""


class Ending:
    """Ends a process that has loaded torch with its exit code, skipping the interpreter's teardown.

    The teardown costs a second and a half of CPU time, for libraries that end with the process anyway. Also,
    if there is a process group, gloo's threads may hold tensors of the last collective slightly longer than
    the thread that waited for it: freeing one while the interpreter is being torn down aborts the process
    (pytorch/pytorch#190489, "terminate called without an active exception"), so that a process that had done
    all its work would appear to crash. Destroying the group does not help while anything refers to it. When
    this runs, other threads have ended, and functions registered with `atexit` after this one have run.
    """

    def __init__(self) -> None:
        self.code: int | None = None
        """The exit code of the process; None: left to the interpreter."""
        atexit.register(self._now)

    def _now(self) -> None:
        code = self.code
        if code is None or "torch" not in sys.modules:
            return
        if callable(signal.getsignal(signal.SIGINT)):
            # Pressed again, it would only print a traceback from here; a flush may also wait for a reader.
            signal.signal(signal.SIGINT, lambda *_: os._exit(code))
        logging.shutdown()  # registered earlier, so it has not run yet
        for stream in filter(None, (sys.stdout, sys.stderr)):  # None if it was closed before the start
            stream.flush()
        _flush_files()
        os._exit(code)


def tell_of_threads() -> None:
    """Say, after `THREADS_S`, which threads keep a process that is done from ending.

    Python waits for them, silently: a user's own part may have started one without `daemon=True`.
    """
    here = threading.current_thread()
    left = [one for one in threading.enumerate() if one is not here and not one.daemon]
    if left:
        threading.Thread(target=_tell_of, args=(left,), name="vtune-threads", daemon=True).start()


def _tell_of(threads: Sequence[threading.Thread]) -> None:
    from vtune.report.progress import say
    from vtune.rollout.blocking import line_of_theirs

    time.sleep(THREADS_S)
    alive = [one for one in threads if one.is_alive()]
    if alive:
        line = line_of_theirs(alive[0].ident or 0)
        at = f", at {line}," if line else ""
        more = f" and {len(alive) - 1} more" if len(alive) > 1 else ""
        say(
            f"done, but waiting for the thread {alive[0].name}{at}{more} to end; "
            "Ctrl-C ends this. A thread that may be left behind needs daemon=True"
        )


def _flush_files() -> None:
    """Write out what a user's own parts have left in file buffers, as the teardown would."""
    for found in gc.get_objects():
        # Check the type: some torch objects compute their `__class__`, with a warning.
        if issubclass(type(found), io.TextIOWrapper | io.BufferedWriter) and not found.closed:
            with suppress(OSError, ValueError):  # a pipe without a reader
                found.flush()


def heed_sigint() -> None:
    """Accept the Ctrl-C that the watcher of a rank holds back while Python starts."""
    if WITHIN in os.environ:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def ignore_sigint() -> None:
    """Ignore Ctrl-C from here on in a rank that is ending: its watcher sends it if another rank has failed.

    Python would otherwise print a traceback from its own teardown after the rank's messages.
    """
    if WITHIN in os.environ:
        # A signal mask would apply only to this thread.
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def heed_orders() -> None:
    """Let SIGTERM and SIGHUP end this process as Ctrl-C does: partial output is removed, exit status 130.

    Verbs that handle them differently for a while, for example while writing a checkpoint, override this. If
    a parent process made one ignored, as `nohup` does, it stays ignored. If there are several processes, each
    ends at once, as its watcher expects: it may be waiting for the others where no Python code runs.
    """
    alone = os.environ.get("WORLD_SIZE", "1") == "1"
    for number in orders_to_stop():
        if alone and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _as_ctrl_c)


class LostInterrupts:
    """Within the block, a Ctrl-C that Python has dropped is sent again.

    If it arrives in a finalizer, Python reports "Exception ignored" and the command goes on. This is not
    rare: the garbage of imports takes half a second to collect, and finalizers run first.
    """

    def __init__(self) -> None:
        self._timer: threading.Timer | None = None

    def __enter__(self) -> None:
        sys.unraisablehook = self._dropped

    def __exit__(self, *_: object) -> None:
        # What runs at interpreter exit, such as a tracker's last upload, may be interrupted once.
        sys.unraisablehook = sys.__unraisablehook__
        if self._timer is not None:
            self._timer.cancel()

    def _dropped(self, lost: "sys.UnraisableHookArgs") -> None:
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            sys.__unraisablehook__(lost)
            return
        number = signal.SIGINT
        if not callable(signal.getsignal(number)):  # then it was SIGTERM, which is handled once
            number = signal.SIGTERM
            signal.signal(number, _as_ctrl_c)
        if self._timer is not None:
            self._timer.cancel()
        # Raised here, it would be lost in this function like the first one.
        self._timer = threading.Timer(AGAIN_S, os.kill, (os.getpid(), number))
        self._timer.daemon = True
        self._timer.start()


def _as_ctrl_c(number: int, frame: FrameType | None) -> None:
    HANG_UP.note(number)
    # Schedulers and `timeout` send it more than once, and a terminal that is closed may send both: a second
    # one must not interrupt what the first started. A function rather than SIG_IGN, which child processes
    # started in the meantime would inherit.
    for order in orders_to_stop():
        signal.signal(order, lambda *_: None)
    handler = signal.getsignal(signal.SIGINT)
    # An event loop has its own handler, which cancels its tasks. In a background job of a shell, Ctrl-C is
    # ignored, and the signal would go unnoticed.
    if not callable(handler):
        raise KeyboardInterrupt
    handler(signal.SIGINT, frame)
