"""One session: runs a model's code again and again in the same namespace."""

import ast
import builtins
import contextlib
import gc
import io
import linecache
import math
import mmap
import os
import random
import signal
import sys
import time
import traceback
import warnings
from types import FrameType
from typing import Any

import cv2
import matplotlib.pyplot as plt
import numpy as np
import PIL.Image
import PIL.ImageDraw
import PIL.ImageEnhance
import PIL.ImageFilter
import PIL.ImageOps

from . import decoding, display, linux, rewrite, wire
from .artifacts import UNREADABLE, Artifact, Collector
from .hooks import Tracker
from .provenance import region_of, track
from .settings import EARLY_PIXELS, Settings

CODE = "<code>"
"""File name of the model's code in its error messages."""
ERROR_CHARS = wire.MAX_ANSWER // 16
"""The end of an error message that fits into an answer: JSON takes at most twelve bytes per character."""
OWN_TIME = 0.25
"""Share of a call's time for which its code must have had a core before a timeout is blamed on it; ours: when
many sessions share few cores, an endless loop and an honest crop look the same."""
ROOM = 0.95
"""Share of a session's memory that must be free for it to reuse a process; ours."""
FRAMES = 6
"""Frames of the model's code shown in an error message."""


# The model may rebind names in these modules; the loop keeps its own references.
_setitimer, _chdir, _compile, _exec = signal.setitimer, os.chdir, compile, exec
_lseek, _fstat, _process_time = os.lseek, os.fstat, time.process_time
_formatwarning = warnings.formatwarning


class _OutOfTime(BaseException):
    """The soft limit of a call has passed. Not an Exception, so that `except Exception` does not catch it."""


class _TooMuch(RuntimeError):
    """More was printed than is kept."""


class _Unparsed(BaseException):
    """The code does not parse; it may be repaired and sent again."""


class _Output(io.TextIOBase):
    """Standard output and error: written straight to the shared file, to survive a kill; capped in length."""

    encoding = "utf-8"

    def __init__(self, cap: int) -> None:
        self.cap = cap
        self.left = cap

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 1

    def write(self, text: str) -> int:
        kept = text[: self.left]
        self.left -= len(kept)
        os.write(1, kept.encode("utf-8", "replace"))
        if len(kept) < len(text):
            raise _TooMuch(f"more than {self.cap} characters were printed")
        return len(text)


class Runner:
    """Holds the namespace of one session and serves its calls."""

    def __init__(self, folder: str, tracker: Tracker, settings: Settings) -> None:
        """Prepare a session without inputs.

        Args:
            folder: Its workspace, absolute and resolved.
            tracker: The tracker that the fork server's hooks report to.
            settings: Settings of the sandbox.
        """
        self.folder = folder
        self.settings = settings
        self.tracker = tracker
        self._begin()
        self.armed = False
        self.output = _output_file()
        """The file from which the trainer reads printed output."""
        # Once confined, neither the code nor this class can change the handler.
        signal.signal(signal.SIGALRM, self._alarm)

    def _begin(self) -> None:
        """Start over without any pictures or calls."""
        self.tracker.begin(self.folder)
        self.collector = Collector(
            self.folder,
            self.tracker,
            max_images=self.settings.images_per_call,
            allows=self.settings.allows,
        )
        self.names: dict[str, Any] = {
            "__name__": "__main__",
            "__builtins__": {**vars(builtins), rewrite.TAKE: rewrite.take},
            # Names that models use without importing them (CodeV, appendix 12).
            "cv2": cv2,
            "display": display.display,
            "Image": PIL.Image,
            "ImageDraw": PIL.ImageDraw,
            "ImageEnhance": PIL.ImageEnhance,
            "ImageFilter": PIL.ImageFilter,
            "ImageOps": PIL.ImageOps,
            "math": math,
            "np": np,
            "numpy": np,
            "os": os,
            "plt": plt,
            "random": random,
        }

    def prepare(self) -> None:
        """Set up what a freshly forked process needs, and make its first call, which is slow."""
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - open for the life of the process
        warnings.formatwarning = _warning
        _seed(0)
        self._call({"code": "import numpy", "raw": False, "repairable": False})

    def loop(self, channel: int) -> None:
        """Receive the inputs, then answer calls until the trainer closes the channel.

        Raises:
            EOFError: When the trainer has closed it.
        """
        while True:
            # The answer repeats the request's number, so an answer written ahead of time is detected.
            message = wire.receive(channel)
            wire.send(channel, {"n": message["n"], **self._answer(message)})
            if "code" not in message and "inputs" in message:
                self._decode_ahead(message["pixels"])

    def _answer(self, message: dict[str, Any]) -> dict[str, Any]:
        if "code" in message:
            if "inputs" in message:
                self._adopt(message)
                self._decode_ahead(message["pixels"])
            return self._call(message)
        if "decode" in message:
            return decoding.decode(message["decode"], message["into"], message["max_pixels"], message["part"])
        if "forget" in message:
            return self._forget()
        try:
            self._adopt(message)
        except MemoryError:
            size = self.settings.memory >> 20
            return {"failed": f"its pictures do not fit into the {size} MiB of sandbox.memory_mb"}
        return {"ready": True}

    def _adopt(self, message: dict[str, Any]) -> None:
        """Become the session of one trajectory, with its random seed and its pictures."""
        _seed(message["seed"])
        self.names.update(self._inputs(message["inputs"]))

    def _forget(self) -> dict[str, Any]:
        """Reset after a trajectory whose code was contained (see `vtune.sandbox.contained`)."""
        self._begin()
        linecache.cache.pop(CODE, None)
        # Python warns once per place; entering and leaving this block resets that.
        with warnings.catch_warnings():
            pass
        # Printed output could otherwise be read through the descriptor.
        os.pwrite(1, bytes(self.settings.output_bytes), 0)
        # Reference cycles and stored exceptions keep files open and pictures in memory.
        gc.collect()
        linux.give_back_memory()
        return {"ready": self._has_room(), "spent": _process_time()}

    def _has_room(self) -> bool:
        """Whether a session finds as much memory as in a new process: scattered leftovers hold addresses."""
        kind = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        try:
            mmap.mmap(-1, int(ROOM * self.settings.memory), flags=kind, prot=mmap.PROT_READ).close()
        except OSError:
            return False
        return True

    def _decode_ahead(self, pixels: list[str | None]) -> None:
        """Decode small inputs while the session is idle; large ones would fill the memory of many sessions.

        `pixels`: for each input, the file with the pixels that the trainer has decoded.
        """
        for picture, file in zip(self.names.get("images", ()), pixels, strict=True):
            if picture.width * picture.height <= EARLY_PIXELS:
                with contextlib.suppress(*UNREADABLE):  # code that uses the picture will get the error
                    if file is None:
                        picture.load()
                    else:
                        decoding.fill(picture, file)

    def _inputs(self, names: list[str]) -> dict[str, Any]:
        pictures = []
        for name in names:
            picture = PIL.Image.open(name)
            # If a PNG has no EXIF in its header, searching for it would decode the picture.
            orientation = picture.getexif().get(0x0112, 1) if "exif" in picture.info else 1
            region = self.tracker.add_input(name, picture.size, orientation)
            picture.region = region  # type: ignore[attr-defined]
            pictures.append(_opaque(picture))
        first = {"image": pictures[0], "image_path": names[0]} if names else {}
        return {**first, "images": pictures, "image_paths": list(names)}

    def _call(self, message: dict[str, Any]) -> dict[str, Any]:
        if _output_file() != self.output:
            raise ConnectionError("what is printed would reach nobody")
        # Anything printed since the last answer, when the process woke up, belongs to no call.
        _lseek(1, 0, os.SEEK_SET)
        sys.stdout = sys.stderr = _Output(self.settings.output_chars)
        self.tracker.start_call()
        self.collector.start_call()
        status, error = self._execute(message["code"], raw=message["raw"], repairable=message["repairable"])
        _chdir(self.folder)
        # If the code does not parse, the second attempt reports everything that is new.
        artifacts = [] if status == "unparsed" else self.collector.collect()
        return {
            "status": status,
            "error": error[-ERROR_CHARS:],
            "written": [artifact.name for artifact in artifacts],
            "broken": [artifact.name for artifact in artifacts if not artifact.readable],
            "crops": self._crops(artifacts),
        }

    def _execute(self, source: str, *, raw: bool, repairable: bool) -> tuple[str, str]:
        """Run the code, as it is or rewritten; return the status and the message for the model.

        If code does not parse and is `repairable`, as the trainer decides, the status is `unparsed`. If it
        was stopped by a limit that it could not know, the status is `limit`.
        """
        seconds = self.settings.seconds
        began = _process_time()
        linecache.cache[CODE] = (len(source), None, source.splitlines(keepends=True), CODE)
        try:
            try:
                tree = _parsed(source, repairable=repairable)
                # Only strings and slices are ever rewritten, and the search would take most of a call's time.
                if not raw and any(mark in source for mark in "'\"["):
                    rewrite.rewrite(tree, self.tracker.inputs)
                program = _compile(tree, CODE, "exec")
                self.armed = True
                _setitimer(signal.ITIMER_REAL, seconds)
                _exec(program, self.names)
            finally:
                self.armed = False
                _setitimer(signal.ITIMER_REAL, 0)
        except _Unparsed:
            return "unparsed", ""
        except _OutOfTime:
            # Otherwise others had the cores (or it waited for nothing at all, which looks the same).
            own = _process_time() - began >= OWN_TIME * seconds
            why = f"TimeoutError: the code ran longer than {seconds:g} s and was stopped"
            return "timeout" if own else "limit", why
        except SystemExit as leave:
            # With a string, it is how a script reports failure.
            return ("error", f"SystemExit: {leave.code}") if type(leave.code) is str else ("ok", "")
        except MemoryError:
            return "limit", "MemoryError: the session's memory limit was reached"
        except _TooMuch as error:
            return "limit", _explain(RuntimeError(*error.args).with_traceback(error.__traceback__))
        except BaseException as error:  # noqa: BLE001 - anything that the model's code raises is its result
            return "error", _explain(error)
        return "ok", ""

    def _alarm(self, signum: int, frame: FrameType | None) -> None:
        if self.armed:
            self.armed = False
            raise _OutOfTime

    def _crops(self, artifacts: list[Artifact]) -> list[dict[str, Any]]:
        """Regions that pictures show, by picture name, then those that were only cropped."""
        crops: list[dict[str, Any]] = [
            {"image": part.image, "bbox": part.box, "shown": artifact.name, "matrix": part.matrix}
            for artifact in artifacts
            if artifact.region is not None
            for part in artifact.region.parts
        ]
        shown = {(crop["image"], crop["bbox"]) for crop in crops}
        for image, box in self.tracker.cuts.seen:
            if (image, box) not in shown:
                crops.append({"image": image, "bbox": box, "shown": None, "matrix": None})
        return crops


def _output_file() -> tuple[int, int] | None:
    """Device and inode of standard output; None if it was closed."""
    try:
        facts = _fstat(1)
    except OSError:
        return None
    return facts.st_dev, facts.st_ino


def _opaque(picture: PIL.Image.Image) -> PIL.Image.Image:
    """An input in RGB, on white, as the policy sees it; a plain one is decoded only when code uses it."""
    if picture.has_transparency_data:
        region = region_of(picture)
        ground = PIL.Image.new("RGBA", picture.size, "white")
        flat: PIL.Image.Image = track(PIL.Image.alpha_composite(ground, picture.convert("RGBA")), region)
        return flat.convert("RGB")
    return picture if picture.mode == "RGB" else picture.convert("RGB")


def _parsed(source: str, *, repairable: bool) -> ast.Module:
    try:
        return ast.parse(source, CODE)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if repairable:
            raise _Unparsed from error
        raise


def _seed(number: int) -> None:
    """Seed every random generator that a model's code may use."""
    random.seed(number)
    np.random.seed(number % 2**32)
    cv2.setRNGSeed(number % 2**31)


def _warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """A warning as Python prints it, but without its place in a library on this machine."""
    if filename == CODE:
        return _formatwarning(message, category, filename, lineno, line)
    return f"{category.__name__}: {message}\n"


def _explain(error: BaseException) -> str:
    """A traceback with only the frames of the model's own code."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == CODE]
    lines = traceback.format_exception_only(error)
    if frames:
        lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames[-FRAMES:]), *lines]
    return "".join(lines).strip()
