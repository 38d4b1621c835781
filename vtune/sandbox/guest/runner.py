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
"""Of an error message, its end, that fit into an answer: JSON takes at most twelve bytes for a character."""
OWN_TIME = 0.25
"""Of a call's time that its code must have had a core, for running out of it to be its own doing; ours: where
many sessions share few cores, an endless loop and an honest crop look the same."""
ROOM = 0.95
"""Of a session's memory that must be free for it to begin in a process that others have used; ours."""
FRAMES = 6
"""Frames of the model's code shown in an error message."""


# The model may rebind names in these modules; the loop keeps its own.
_setitimer, _chdir, _compile, _exec = signal.setitimer, os.chdir, compile, exec
_lseek, _fstat, _process_time = os.lseek, os.fstat, time.process_time
_formatwarning = warnings.formatwarning


class _OutOfTime(BaseException):
    """The soft limit of a call has passed. Not an Exception, so that `except Exception` lets it through."""


class _TooMuch(RuntimeError):
    """More was printed than is kept."""


class _Unparsed(BaseException):
    """The code does not parse, and may be sent again, repaired."""


class _Output(io.TextIOBase):
    """Standard output and error: goes straight to the shared file, so it survives a kill; cut at a cap."""

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
            tracker: The one that the fork server's hooks report to.
            settings: Of the sandbox.
        """
        self.folder = folder
        self.settings = settings
        self.tracker = tracker
        self._begin()
        self.armed = False
        self.output = _output_file()
        """The file that the trainer reads what is printed from."""
        # Once confined, nobody can change who handles it: neither the code, nor we.
        signal.signal(signal.SIGALRM, self._alarm)

    def _begin(self) -> None:
        """Know nothing of any pictures or calls."""
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
            # What models use without importing it (CodeV, appendix 12).
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
        """What a freshly forked process needs to serve, and its first call, which is slow."""
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - for the life of the process
        warnings.formatwarning = _warning
        _seed(0)
        self._call({"code": "import numpy", "raw": False, "repairable": False})

    def loop(self, channel: int) -> None:
        """Take in the inputs, then answer calls until the trainer closes the channel.

        Raises:
            EOFError: When it did.
        """
        while True:
            # The answer carries the number that came with the question, so an answer written ahead is known.
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
        return self._adopt(message)

    def _adopt(self, message: dict[str, Any]) -> dict[str, Any]:
        """Become the session of one trajectory: its random numbers and its pictures."""
        _seed(message["seed"])
        self.names.update(self._inputs(message["inputs"]))
        return {"ready": True}

    def _forget(self) -> dict[str, Any]:
        """Be as good as new, after a trajectory whose code was contained (see `vtune.sandbox.contained`)."""
        self._begin()
        linecache.cache.pop(CODE, None)
        # Python warns once of each place; entering and leaving this makes it forget of which.
        with warnings.catch_warnings():
            pass
        # What was printed can be read through the descriptor.
        os.pwrite(1, bytes(self.settings.output_bytes), 0)
        # Lists that hold themselves, and errors that were kept, hold files open and pictures in memory.
        gc.collect()
        linux.give_back_memory()
        return {"ready": self._has_room(), "spent": _process_time()}

    def _has_room(self) -> bool:
        """Whether a session finds as much memory as in a new process: scattered remains hold addresses."""
        kind = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        try:
            mmap.mmap(-1, int(ROOM * self.settings.memory), flags=kind, prot=mmap.PROT_READ).close()
        except OSError:
            return False
        return True

    def _decode_ahead(self, pixels: list[str | None]) -> None:
        """Decode small inputs while nobody waits; large ones would fill the memory of many sessions.

        `pixels`: by input, the file of what the trainer has decoded.
        """
        for picture, file in zip(self.names.get("images", ()), pixels, strict=True):
            if picture.width * picture.height <= EARLY_PIXELS:
                with contextlib.suppress(*UNREADABLE):  # whoever uses it will get the error
                    if file is None:
                        picture.load()
                    else:
                        decoding.fill(picture, file)

    def _inputs(self, names: list[str]) -> dict[str, Any]:
        pictures = []
        for name in names:
            picture = PIL.Image.open(name)
            # Without EXIF in its head, a PNG would be decoded in search of it.
            orientation = picture.getexif().get(0x0112, 1) if "exif" in picture.info else 1
            region = self.tracker.add_input(name, picture.size, orientation)
            picture.region = region  # type: ignore[attr-defined]
            pictures.append(_opaque(picture))
        first = {"image": pictures[0], "image_path": names[0]} if names else {}
        return {**first, "images": pictures, "image_paths": list(names)}

    def _call(self, message: dict[str, Any]) -> dict[str, Any]:
        if _output_file() != self.output:
            raise ConnectionError("what is printed would reach nobody")
        # What was printed since the last answer, by whatever woke up with the process, belongs to no call.
        _lseek(1, 0, os.SEEK_SET)
        sys.stdout = sys.stderr = _Output(self.settings.output_chars)
        self.tracker.start_call()
        self.collector.start_call()
        status, error = self._execute(message["code"], raw=message["raw"], repairable=message["repairable"])
        _chdir(self.folder)
        # Of a call that is made again the second time finds all that is new.
        artifacts = [] if status == "unparsed" else self.collector.collect()
        return {
            "status": status,
            "error": error[-ERROR_CHARS:],
            "written": [artifact.name for artifact in artifacts],
            "broken": [artifact.name for artifact in artifacts if not artifact.readable],
            "crops": self._crops(artifacts),
        }

    def _execute(self, source: str, *, raw: bool, repairable: bool) -> tuple[str, str]:
        """Run the code, as it is or rewritten; returns the status and the message for the model.

        Code that does not parse is the status `unparsed` where it is `repairable`, as the trainer decides.
        Where a limit ended it that it could not know, that is the status `limit`.
        """
        seconds = self.settings.seconds
        began = _process_time()
        linecache.cache[CODE] = (len(source), None, source.splitlines(keepends=True), CODE)
        try:
            try:
                tree = _parsed(source, repairable=repairable)
                # Only texts and slices are ever changed, and most of a call's time would go into the search.
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
            # Else it waited for a core that others had (or for nothing at all, which looks the same).
            own = _process_time() - began >= OWN_TIME * seconds
            why = f"TimeoutError: the code ran longer than {seconds:g} s and was stopped"
            return "timeout" if own else "limit", why
        except SystemExit as leave:
            # With a text it is how a script says that it failed.
            return ("error", f"SystemExit: {leave.code}") if type(leave.code) is str else ("ok", "")
        except MemoryError:
            return "limit", "MemoryError: the session's memory limit was reached"
        except _TooMuch as error:
            return "limit", _explain(RuntimeError(*error.args).with_traceback(error.__traceback__))
        except BaseException as error:  # noqa: BLE001 - whatever the model's code raised is its result
            return "error", _explain(error)
        return "ok", ""

    def _alarm(self, signum: int, frame: FrameType | None) -> None:
        if self.armed:
            self.armed = False
            raise _OutOfTime

    def _crops(self, artifacts: list[Artifact]) -> list[dict[str, Any]]:
        """Regions that pictures show, by the picture's name, then those that were only cut out."""
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
    """Which file is standard output; None where it was closed."""
    try:
        facts = _fstat(1)
    except OSError:
        return None
    return facts.st_dev, facts.st_ino


def _opaque(picture: PIL.Image.Image) -> PIL.Image.Image:
    """An input in RGB, on white, as the policy sees it; a plain one stays undecoded until code touches it."""
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
    """Seed every random generator that a model's code may count on."""
    random.seed(number)
    np.random.seed(number % 2**32)
    cv2.setRNGSeed(number % 2**31)


def _warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """A warning as Python prints it; where in a library of this machine it arose is left out."""
    if filename == CODE:
        return _formatwarning(message, category, filename, lineno, line)
    return f"{category.__name__}: {message}\n"


def _explain(error: BaseException) -> str:
    """A traceback with the frames of the model's own code."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == CODE]
    lines = traceback.format_exception_only(error)
    if frames:
        lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames[-FRAMES:]), *lines]
    return "".join(lines).strip()
