"""Turn a file that a session left into a picture for the model, here or in a confined process."""

import asyncio
import io
from collections.abc import Awaitable, Callable

import PIL.Image

from vtune.errors import ServiceError
from vtune.sandbox.forkserver import Place
from vtune.sandbox.process import Process, ProtocolError
from vtune.sandbox.types import Limits
from vtune.sandbox.workspace import PLAIN_FORMATS, NotShown, Workspace, as_png, check_picture

INPUT, OUTPUT = "picture", "pixels"
"""Names of the two files by which a confined decoder takes and gives."""
BANDS = {"L": 1, "RGB": 3, "RGBA": 4}
SECONDS = 10.0
"""For one picture; ours."""


def decode_here(limits: Limits) -> Callable[[bytes], Awaitable[bytes]]:
    """A decoder in this process: PNG and JPEG pass as they are once their head is looked at."""

    async def decode(content: bytes) -> bytes:
        kind = check_picture(content, max_pixels=limits.max_pixels)
        return content if kind in PLAIN_FORMATS else as_png(content)

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
        self._process: Process | None = None
        self._files: Workspace | None = None
        self._turn = asyncio.Lock()

    async def decode(self, content: bytes) -> bytes:
        """The picture as a newly written PNG.

        Raises:
            NotShown: If it is not a picture, too large, or breaks the decoder.
            ServiceError: If no decoder can be started.
        """
        async with self._turn:
            if self._process is None or self._process.closed:
                await self._start()
            assert self._process is not None
            assert self._files is not None
            self._files.put(INPUT, content)
            try:
                async with asyncio.timeout(SECONDS):
                    answer = await self._process.ask({"decode": INPUT, "into": OUTPUT})
                return self._encoded(answer, self._files)
            except (OSError, EOFError, TimeoutError, ProtocolError) as error:
                lives = await self._process.server_lives()
                await self._process.end()
                if not lives:
                    raise ServiceError("the sandbox's fork server died while it decoded a picture") from error
                raise NotShown("it broke the decoder") from error

    def abandon(self) -> None:
        """Let go of the process; its folder is left to the sandbox."""
        if self._process is not None and not self._process.closed:
            self._process.kill()
            self._process.close()
        if self._files is not None:
            self._files.close()

    async def _start(self) -> None:
        self.abandon()
        self._process, place = await self._spawn(None)
        self._files = Workspace.of(place.folder, max_files=2, max_bytes=self._limits.max_pixels * 4)

    def _encoded(self, answer: dict[str, object], files: Workspace) -> bytes:
        if isinstance(answer.get("refused"), str):
            raise NotShown(str(answer["refused"]))
        mode, size = answer.get("mode"), answer.get("size")
        if not isinstance(mode, str) or mode not in BANDS or not isinstance(size, list) or len(size) != 2:
            raise ProtocolError(f"a picture of mode {mode!r} and size {size!r}")
        width, height = (int(side) for side in size)
        pixels = files.read(OUTPUT, max_bytes=self._limits.max_pixels * 4)
        if width < 1 or height < 1 or len(pixels) != width * height * BANDS[mode]:
            raise ProtocolError(f"{len(pixels)} bytes for {width} x {height} pixels")
        file = io.BytesIO()
        PIL.Image.frombytes(mode, (width, height), pixels).save(file, "PNG", compress_level=1)
        return file.getvalue()
