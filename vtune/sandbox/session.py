"""One trajectory's code: a process that keeps its state from call to call, and a folder."""

import asyncio
import io
import shutil
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import PIL.Image

from vtune.errors import ServiceError
from vtune.sandbox.process import Process, ProtocolError
from vtune.sandbox.repair import repair
from vtune.sandbox.scan import Scanner
from vtune.sandbox.types import Execution, Limits, ShownCrop
from vtune.schema.box import proper
from vtune.schema.decode import UNDECODABLE

WORKSPACE = "/workspace"
"""What a model sees in place of its folder's real name, which differs from run to run."""
STATE_LOST = "the session was restarted, all variables are lost (files are kept)"


class Session:
    """Runs the code of one trajectory. Made by `Sandbox.open`; one call at a time."""

    def __init__(
        self,
        folder: Path,
        image_names: tuple[str, ...],
        limits: Limits,
        spawn: Callable[[], Awaitable[Process]],
        forget: Callable[["Session"], object],
    ) -> None:
        self.image_names = image_names
        """File names of the input images, as the model's code sees them."""
        self._folder = folder
        self._limits = limits
        self._spawn = spawn
        self._forget = forget
        self._process: Process | None = None
        self._scanner = Scanner()
        self._turn = asyncio.Lock()
        self._failed = ""
        """Why the sandbox under this session failed; nothing runs after that."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Start the process.

        Raises:
            ServiceError: If the sandbox cannot.
        """
        self._process = await self._spawn()

    async def run(self, code: str) -> Execution:
        """Run code in the session's namespace.

        Never raises for what the code does; a failure of the sandbox itself is the status `infra`. When the
        call is cancelled, the process is killed, and the next call starts a new one.
        """
        async with self._turn:
            started = time.perf_counter()
            execution = await self._run(code)
            return replace(execution, seconds=time.perf_counter() - started)

    async def close(self) -> None:
        """End the process and remove the folder; harmless when repeated."""
        self._forget(self)
        try:
            if self._process is not None:
                await self._process.end()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def abandon(self) -> None:
        """Let go of the process without waiting for its end; the folder is left to the caller."""
        if self._process is not None and not self._process.closed:
            self._process.kill()
            self._process.close()

    async def _run(self, code: str) -> Execution:
        if self._failed:
            return Execution(status="infra", error=self._failed)
        if len(code) > self._limits.code_chars:
            return Execution(
                status="error", error=f"the code is longer than {self._limits.code_chars} characters"
            )
        try:
            source, tree = repair(code)
            forbidden = self._scanner.scan(tree)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            return Execution(status="error", error=_one_line(error))
        if forbidden:
            return Execution(status="blocked", error=f"blocked by policy: {', '.join(forbidden)}")
        try:
            if self._process is None or self._process.closed:
                await self.start()
        except ServiceError as error:
            self._failed = str(error)
            return Execution(status="infra", error=self._failed)
        assert self._process is not None
        return await self._ask(self._process, source)

    async def _ask(self, process: Process, source: str) -> Execution:
        answered = False
        try:
            async with asyncio.timeout(self._limits.seconds + self._limits.grace):
                reply, blobs = await process.ask({"code": source})
            execution = self._execution(reply, blobs, process.printed())
            answered = True
        except TimeoutError:
            limit = f"{self._limits.seconds:g} s"
            return self._killed(
                process, f"TimeoutError: the code ran longer than {limit} and was not to be stopped"
            )
        except (OSError, EOFError, ProtocolError):
            # A fork server that died took the session with it; otherwise the code ended its own process.
            if not process.server_lives():
                self._failed = "the sandbox's fork server died"
                return Execution(status="infra", error=self._failed)
            return self._killed(process, "the code ended its own process or ran out of memory or CPU time")
        finally:
            if not answered:
                # Also on cancellation: a half-done call would answer the next one.
                process.kill()
                process.close()
        return execution

    def _killed(self, process: Process, why: str) -> Execution:
        # Names that the lost code had imported are gone with it.
        self._scanner = Scanner()
        printed = self._plain(process.printed()).rstrip("\n")
        return Execution(status="killed", output=printed, error=f"{why}; {STATE_LOST}")

    def _execution(self, reply: dict[str, Any], blobs: list[bytes], printed: str) -> Execution:
        """The reply as a record.

        Raises:
            ProtocolError: If it is not one that the runner writes.
        """
        try:
            notes = [str(note) for note in reply["notes"]]
            names = [str(name) for name in reply["names"]]
            crops = [_crop(crop, len(self.image_names), len(blobs)) for crop in reply["crops"]]
            status, error = reply["status"], str(reply["error"])
        except (KeyError, TypeError, ValueError) as broken:
            raise ProtocolError(str(broken)) from broken
        if status not in ("ok", "error", "timeout") or len(names) != len(blobs):
            raise ProtocolError(f"status {status!r} with {len(names)} names for {len(blobs)} pictures")
        for blob in blobs:
            self._check(blob)
        lines = [self._plain(printed).rstrip("\n"), *(f"(note: {note})" for note in notes)]
        return Execution(
            status=status,
            output="\n".join(line for line in lines if line),
            error=self._plain(error)[-self._limits.error_chars :],
            images=tuple(blobs),
            names=tuple(names),
            crops=tuple(crops),
        )

    def _check(self, blob: bytes) -> None:
        """Look at a picture's header; the session has decoded it, but its word is not enough."""
        try:
            with PIL.Image.open(io.BytesIO(blob), formats=("PNG", "JPEG")) as picture:
                pixels = picture.width * picture.height
        except UNDECODABLE as error:
            raise ProtocolError(f"a picture that is none: {error}") from error
        if pixels > self._limits.max_pixels:
            raise ProtocolError(f"a picture of {pixels} pixels")

    def _plain(self, text: str) -> str:
        """Text without the real name of the folder."""
        return text.replace(str(self._folder), WORKSPACE).replace(str(self._folder.parent), "/")


def _crop(crop: dict[str, Any], inputs: int, shown: int) -> ShownCrop:
    x0, y0, x1, y1 = (float(side) for side in crop["bbox"])
    if not proper((x0, y0, x1, y1)):
        raise ValueError(f"a crop of the box {crop['bbox']}")
    image, number = int(crop["image"]), crop["shown"]
    if not 0 <= image < inputs or not (number is None or (isinstance(number, int) and 0 <= number < shown)):
        raise ValueError(f"a crop of image {image} shown in {number}")
    return ShownCrop(bbox=(x0, y0, x1, y1), image=image, shown=number)


def _one_line(error: BaseException) -> str:
    """What went wrong before the code could run."""
    if isinstance(error, SyntaxError):
        where = f" (line {error.lineno}: {(error.text or '').strip()})" if error.lineno else ""
        return f"{type(error).__name__}: {error.msg}{where}"
    if isinstance(error, RecursionError | MemoryError):
        return f"{type(error).__name__}: the code is nested too deeply"
    return f"{type(error).__name__}: {error}"
