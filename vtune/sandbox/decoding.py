"""Decodes a file that a session left into a picture for the model, here or in a confined process."""

import asyncio
import contextlib
import io
import os
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import numpy as np
import PIL.Image

from vtune.errors import ServiceError
from vtune.sandbox.forkserver import Place
from vtune.sandbox.guest import folders
from vtune.sandbox.process import Process, ProtocolError, for_seconds
from vtune.sandbox.turns import Turns
from vtune.sandbox.types import Limits
from vtune.sandbox.workspace import NotShown, Workspace, check_picture
from vtune.schema.decode import eight_bits, opaque
from vtune.schema.decoded import keep
from vtune.schema.pixels import Refused, check_head, check_size, decode

INPUT, OUTPUT = "picture", "pixels"
"""Names of the files by which a confined decoder takes and gives; numbers follow the second."""
BANDS = {"L": 1, "RGB": 3, "RGBA": 4}
PLAIN = ("L", "RGB")
"""Modes of a PNG that is shown as it is, if its levels have eight bits."""
PNG_END = b"IEND\xaeB`\x82"
"""The last bytes of a whole PNG."""
SECONDS = 10.0
"""For one picture; ours. The largest that is allowed takes one or two."""
PICTURES = 100
"""Decoded by one process before it is replaced: what one does to it, few others suffer. Ours."""
MOST_DECODERS = 4
"""At the same time, for that number of cores: one that hangs leaves the others free. Ours."""
SMALL = 1 << 16
"""Pixels that are decoded and encoded within a millisecond: a thread would be the longer way. Ours."""
JPEG_QUALITY = 95
"""Of what came as JPEG, with its colours in full: PNG would be ten times as large and as slow. Ours."""
RUN_LENGTHS = 3
"""zlib's strategy for PNG (Z_RLE): 0.6 of the time of its default, for files 0.9 to 1.1 times as large."""


class _Broken(Exception):
    """The process died, was late, or answered nonsense."""


Decoder = Callable[[bytes, bool], Awaitable[bytes]]
"""From the bytes of a file, and whether only contained code can have written it, to a picture as PNG or JPEG;
raises `NotShown`."""


def decode_here(limits: Limits) -> Decoder:
    """A decoder in this process: whole PNG and JPEG pass as they are, once they have been decoded."""

    async def decode_one(content: bytes, contained: bool) -> bytes:
        kind = check_picture(content, max_pixels=limits.max_pixels)
        # Seconds, for a large one: the sessions beside it go on.
        return await asyncio.to_thread(_plain, content, kind, limits.max_pixels)

    return decode_one


def _plain(content: bytes, kind: str, max_pixels: int) -> bytes:
    try:
        picture = decode(content, None, max_pixels=max_pixels)
    except Refused as refused:
        raise NotShown(str(refused)) from refused
    if kind in ("PNG", "JPEG") and not picture.has_transparency_data:
        return content
    return encode(opaque(picture), kind)


def encode(picture: PIL.Image.Image, kind: str) -> bytes:
    """A picture of grey levels or colours as a new file: JPEG where it was one, else PNG.

    Nothing shows through it: what a transparent picture shows would be up to whoever reads it.
    """
    picture = opaque(picture) if picture.has_transparency_data else picture
    file = io.BytesIO()
    if kind == "JPEG":
        picture.save(file, "JPEG", quality=JPEG_QUALITY, subsampling=0)
    else:
        picture.save(file, "PNG", compress_level=1, compress_type=RUN_LENGTHS)
    return file.getvalue()


class _Raw(NamedTuple):
    """A picture as a confined process hands it over."""

    mode: str
    """Of `BANDS`."""
    size: tuple[int, int]
    """(width, height) in pixels."""
    levels: list[bytes]
    """Row by row, a byte for each band of each pixel; in one part or several."""


def _is_plain(picture: PIL.Image.Image, content: bytes) -> bool:
    """Whether a PNG, decoded, holds nothing but its pixels, of eight bits and compressed."""
    return (
        picture.mode in PLAIN
        and content[24] == 8
        and not picture.info
        and not getattr(picture, "private_chunks", None)
        and content.endswith(PNG_END)
        and len(content) < picture.width * picture.height * BANDS[picture.mode]
    )


def _decoded_here(content: bytes, kind: str, max_pixels: int) -> bytes:
    """A file of contained code, decoded here: as it is where it is a PNG with nothing but its pixels.

    Else it is encoded anew, to the bytes that a confined decoder would have led to.

    Raises:
        Refused: If it is not a picture, or breaks a limit.
    """
    picture = decode(content, None, max_pixels=max_pixels)
    if kind == "PNG" and _is_plain(picture, content):
        if picture.mode == "RGB":
            keep(content, np.asarray(picture))
        return content
    picture = eight_bits(picture)
    mode = "RGBA" if picture.has_transparency_data else "L" if picture.mode == "L" else "RGB"
    return _encoded(_Raw(mode, picture.size, [picture.convert(mode).tobytes()]), kind)


def _encoded(raw: _Raw, kind: str) -> bytes:
    return encode(PIL.Image.frombytes(raw.mode, raw.size, b"".join(raw.levels)), kind)


class ConfinedDecoder:
    """Decodes in a session of its own, which is replaced when a picture breaks it.

    Only pixels come back, and they are encoded anew: a file that breaks a decoder never reaches the trainer,
    whose own code reads no more of it than the head, in plain Python.
    """

    def __init__(
        self, spawn: Callable[[Place | None], Awaitable[tuple[Process, Place]]], limits: Limits, turns: Turns
    ) -> None:
        self._spawn = spawn
        self._limits = limits
        self._turns = turns
        self._part = limits.file_mb << 20
        """Bytes of a file through which pixels pass: the largest that a session may write."""
        self._used = 0
        """Pictures that the process has decoded."""
        self._process: Process | None = None
        self._files: Workspace | None = None

    @property
    def process(self) -> Process | None:
        """What decodes, None before the first picture."""
        return self._process

    async def decode(self, content: bytes) -> bytes:
        """The picture as a newly written JPEG or PNG. One at a time.

        Raises:
            NotShown: If it is not a picture, breaks a limit, or breaks a fresh decoder.
            ServiceError: If no decoder can be started.
        """
        kind = check_picture(content, max_pixels=self._limits.max_pixels)
        raw = await self._decoded(content)
        # Up to a second, for a large one: the sessions beside it go on.
        return await asyncio.to_thread(_encoded, raw, kind)

    async def _decoded(self, content: bytes) -> _Raw:
        if self._used >= PICTURES:
            await self._retire()
        if self._process is not None and not self._process.closed:
            # Not necessarily by this picture: it may have been on its last legs, or its fork server is dead
            # and has been replaced, with its folder gone.
            with contextlib.suppress(_Broken, OSError):
                return await self._ask(content)
        try:
            process = await self._start()
            return await self._ask(content)
        except _Broken as broken:
            if not await process.server.lives():
                raise ServiceError("the sandbox's fork server died while it decoded a picture") from broken
            raise NotShown("it broke the decoder") from broken
        except OSError as error:
            raise ServiceError(f"the sandbox cannot hand a picture to its decoder: {error}") from error

    async def _ask(self, content: bytes) -> _Raw:
        assert self._process is not None
        assert self._files is not None
        self._used += 1
        try:
            await self._files.put(INPUT, content)
            try:
                message: dict[str, Any] = {"decode": INPUT, "into": OUTPUT, "part": self._part}
                message["max_pixels"] = self._limits.max_pixels
                answer = await self._process.ask(message, for_seconds(SECONDS))
                return await self._raw(answer, self._files)
            except (OSError, EOFError, ProtocolError) as error:
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
            # The pixels of a picture: on a busy disk their removal was seen to take 0.2 s.
            await asyncio.to_thread(folders.remove, str(self._files.folder.parent))
            self._files = None

    async def _start(self) -> Process:
        await self._retire()
        process, place = await self._spawn(None)
        try:
            files = Workspace.of(place.folder, self._turns, max_files=8, max_bytes=self._limits.file_mb << 20)
        except OSError:
            # Its folder went with a fork server that died meanwhile.
            process.kill()
            process.close()
            raise
        self._process, self._files, self._used = process, files, 0
        return process

    async def _raw(self, answer: dict[str, object], files: Workspace) -> _Raw:
        if isinstance(answer.get("refused"), str):
            raise NotShown(str(answer["refused"]))
        mode, size = answer.get("mode"), answer.get("size")
        if not isinstance(mode, str) or mode not in BANDS or not isinstance(size, list) or len(size) != 2:
            raise ProtocolError(f"a picture of mode {mode!r} and size {size!r}")
        try:
            width, height = (int(side) for side in size)
        except (TypeError, ValueError, OverflowError) as error:
            raise ProtocolError(f"a picture of size {size!r}") from error
        try:
            # What was decoded, against what the head promised.
            check_size(width, height, max_pixels=self._limits.max_pixels)
        except Refused as refused:
            raise NotShown(str(refused)) from refused
        length = width * height * BANDS[mode]
        parts = range(-(-length // self._part))
        levels = [await files.read(f"{OUTPUT}{number}", max_bytes=self._part) for number in parts]
        if (count := sum(map(len, levels))) != length:
            raise ProtocolError(f"{count} bytes for {width} x {height} pixels")
        return _Raw(mode, (width, height), levels)


class ConfinedDecoders:
    """A few of them, each made when it is first needed: a picture that takes long holds up no others."""

    def __init__(
        self, spawn: Callable[[Place | None], Awaitable[tuple[Process, Place]]], limits: Limits, turns: Turns
    ) -> None:
        self._max_pixels = limits.max_pixels
        count = min(MOST_DECODERS, len(os.sched_getaffinity(0)))
        self.all = [ConfinedDecoder(spawn, limits, turns) for _ in range(max(2, count))]
        # The one that was used last is taken first: a quiet sandbox keeps one process.
        self._free = list(self.all)
        self._room = asyncio.Semaphore(len(self.all))
        self._here = asyncio.Semaphore(len(self.all))
        """For pictures that are decoded by this process: a large one takes 600 MB of its memory."""

    async def decode(self, content: bytes, contained: bool = False) -> bytes:
        """As `ConfinedDecoder.decode`, many at a time.

        What contained code has written are pictures of Pillow's or OpenCV's making, cut from those that this
        process reads anyway: they are decoded here, to the same pixels.
        """
        if contained:
            with contextlib.suppress(Refused):  # and left to those who can say why
                head = check_head(content, max_pixels=self._max_pixels)
                if head.width * head.height <= SMALL:
                    return _decoded_here(content, head.kind, self._max_pixels)
                async with self._here:
                    return await asyncio.to_thread(_decoded_here, content, head.kind, self._max_pixels)
        async with self._room:
            decoder = self._free.pop()
            try:
                return await decoder.decode(content)
            finally:
                self._free.append(decoder)

    def abandon(self) -> None:
        """Let go of all; the folders are left to the sandbox."""
        for decoder in self.all:
            decoder.abandon()
