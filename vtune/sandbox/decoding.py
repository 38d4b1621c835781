"""Turn a file that a session left into a picture for the model, here or in a confined process."""

import asyncio
import io
from collections.abc import Awaitable, Callable

import PIL.Image

from vtune.errors import ServiceError
from vtune.sandbox.forkserver import Place
from vtune.sandbox.guest import folders
from vtune.sandbox.process import Process, ProtocolError, for_seconds
from vtune.sandbox.types import Limits
from vtune.sandbox.workspace import PLAIN_FORMATS, NotShown, Workspace, as_png, check_picture

INPUT, OUTPUT = "picture", "pixels"
"""Names of the two files by which a confined decoder takes and gives."""
BANDS = {"L": 1, "RGB": 3, "RGBA": 4}
SECONDS = 10.0
"""For one picture; ours."""
PICTURES = 100
"""Decoded by one process before it is replaced: what one does to it, few others suffer. Ours."""


class _Broken(Exception):
    """The process died, was late, or answered nonsense."""


def decode_here(limits: Limits) -> Callable[[bytes], Awaitable[bytes]]:
    """A decoder in this process: PNG and JPEG pass as they are once their head is looked at."""

    async def decode(content: bytes) -> bytes:
        kind = check_picture(content, max_pixels=limits.max_pixels)
        # Seconds, for a large one: the sessions beside it go on.
        return content if kind in PLAIN_FORMATS else await asyncio.to_thread(as_png, content)

    return decode


class ConfinedDecoder:
    """Decodes in a session of its own, which is replaced when a picture breaks it.

    Only pixels come back, and they are encoded anew: a file that breaks a decoder never reaches the trainer.
    """

    def __init__(
        self, spawn: Callable[[Place | None], Awaitable[tuple[Process, Place]]], limits: Limits
    ) -> None:
        self._spawn = spawn
        self._limits = limits
        # Its pixels pass through a file of the session.
        self._max_pixels = min(limits.max_pixels, (limits.file_mb << 20) // max(BANDS.values()))
        self._used = 0
        """Pictures that the process has decoded."""
        self._process: Process | None = None
        self._files: Workspace | None = None
        self._turn = asyncio.Lock()

    async def decode(self, content: bytes) -> bytes:
        """The picture as a newly written PNG.

        Raises:
            NotShown: If it is not a picture, too large, or breaks a fresh decoder.
            ServiceError: If no decoder can be started.
        """
        async with self._turn:
            if self._used >= PICTURES:
                await self._retire()
            if self._process is not None and not self._process.closed:
                try:
                    return await self._ask(content)
                except _Broken:
                    # Not necessarily by this picture: it may have been on its last legs.
                    pass
            await self._start()
            try:
                return await self._ask(content)
            except _Broken as broken:
                raise NotShown("it broke the decoder") from broken

    async def _ask(self, content: bytes) -> bytes:
        assert self._process is not None
        assert self._files is not None
        self._used += 1
        try:
            self._files.put(INPUT, content)
            try:
                message = {"decode": INPUT, "into": OUTPUT, "max_pixels": self._max_pixels}
                answer = await self._process.ask(message, for_seconds(SECONDS))
                return self._encoded(answer, self._files)
            except (OSError, EOFError, ProtocolError) as error:
                self._process.kill()
                if not await self._process.server.lives():
                    raise ServiceError("the sandbox's fork server died while it decoded a picture") from error
                raise _Broken from error
        except NotShown:
            raise
        except BaseException:
            # Also on cancellation: a half-done answer would be taken for the next one.
            self.abandon()
            raise

    def abandon(self) -> None:
        """Let go of the process; its folder is left to the sandbox."""
        if self._process is not None and not self._process.closed:
            self._process.kill()
            self._process.close()
        if self._files is not None:
            self._files.close()

    async def _retire(self) -> None:
        """End the process and remove its folder."""
        if self._process is not None:
            await self._process.end()
        self.abandon()
        if self._files is not None:
            folders.remove(str(self._files.folder.parent))
            self._files = None

    async def _start(self) -> None:
        await self._retire()
        self._process, place = await self._spawn(None)
        self._used = 0
        self._files = Workspace.of(place.folder, max_files=2, max_bytes=self._limits.file_mb << 20)

    def _encoded(self, answer: dict[str, object], files: Workspace) -> bytes:
        if isinstance(answer.get("refused"), str):
            raise NotShown(str(answer["refused"]))
        mode, size = answer.get("mode"), answer.get("size")
        if not isinstance(mode, str) or mode not in BANDS or not isinstance(size, list) or len(size) != 2:
            raise ProtocolError(f"a picture of mode {mode!r} and size {size!r}")
        try:
            width, height = (int(side) for side in size)
        except (TypeError, ValueError, OverflowError) as error:
            raise ProtocolError(f"a picture of size {size!r}") from error
        pixels = files.read(OUTPUT, max_bytes=self._limits.file_mb << 20)
        if width < 1 or height < 1 or len(pixels) != width * height * BANDS[mode]:
            raise ProtocolError(f"{len(pixels)} bytes for {width} x {height} pixels")
        file = io.BytesIO()
        PIL.Image.frombytes(mode, (width, height), pixels).save(file, "PNG", compress_level=1)
        return file.getvalue()
