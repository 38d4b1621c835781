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
"""Files through which a confined decoder gets its input and returns its output; numbers follow the second."""
BANDS = {"L": 1, "RGB": 3, "RGBA": 4}
PLAIN = ("L", "RGB")
"""Modes of a PNG that is shown unchanged, if it has eight bits per level."""
PNG_END = b"IEND\xaeB`\x82"
"""The last bytes of a complete PNG."""
SECONDS = 10.0
"""Time limit per picture; ours. The largest picture allowed takes one or two seconds."""
PICTURES = 100
"""Decoded by one process before it is replaced, so that damage from one picture affects few others. Ours."""
MOST_DECODERS = 4
"""Working at the same time, given enough cores: one that hangs leaves the others free. Ours."""
SMALL = 1 << 16
"""Pixels that take less than a millisecond to decode and encode: a thread would take longer. Ours."""
JPEG_QUALITY = 95
"""For what came as JPEG, without chroma subsampling: PNG would be ten times as large and slow. Ours."""
RUN_LENGTHS = 3
"""zlib's strategy for PNG (Z_RLE): 0.6 of the time of its default, for files 0.9 to 1.1 times as large."""


class _Broken(Exception):
    """The process died, was late, or sent an invalid answer."""


Decoder = Callable[[bytes, bool], Awaitable[bytes]]
"""Turns the bytes of a file, and whether only contained code can have written it, into a picture as PNG or
JPEG; raises `NotShown`."""


def decode_here(limits: Limits) -> Decoder:
    """A decoder in this process: complete PNG and JPEG files are returned unchanged once they decode."""

    async def decode_one(content: bytes, contained: bool) -> bytes:
        kind = check_picture(content, max_pixels=limits.max_pixels)
        # In a thread: a large one takes seconds, and other sessions must go on.
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
    """A grey or colour picture as a new file: JPEG if it was one, else PNG.

    It is opaque: how a transparent picture looks would depend on the reader.
    """
    picture = opaque(picture) if picture.has_transparency_data else picture
    file = io.BytesIO()
    if kind == "JPEG":
        picture.save(file, "JPEG", quality=JPEG_QUALITY, subsampling=0)
    else:
        picture.save(file, "PNG", compress_level=1, compress_type=RUN_LENGTHS)
    return file.getvalue()


class _Raw(NamedTuple):
    """A picture as returned by a confined process."""

    mode: str
    """One of `BANDS`."""
    size: tuple[int, int]
    """(width, height) in pixels."""
    levels: list[bytes]
    """Row by row, one byte for each band of each pixel; in one or several parts."""


def _is_plain(picture: PIL.Image.Image, content: bytes) -> bool:
    """Whether a decoded PNG holds nothing but its pixels, compressed and with eight bits."""
    return (
        picture.mode in PLAIN
        and content[24] == 8
        and not picture.info
        and not getattr(picture, "private_chunks", None)
        and content.endswith(PNG_END)
        and len(content) < picture.width * picture.height * BANDS[picture.mode]
    )


def _decoded_here(content: bytes, kind: str, max_pixels: int) -> bytes:
    """Decode a file of contained code here; a PNG with nothing but its pixels is returned unchanged.

    Anything else is encoded again, to the same bytes that a confined decoder would have led to.

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
    """Decodes in its own session, which is replaced when a picture breaks it.

    Only pixels come back, and they are encoded again: a file that breaks a decoder never reaches the trainer,
    whose own code only parses the file's header, in plain Python.
    """

    def __init__(
        self, spawn: Callable[[Place | None], Awaitable[tuple[Process, Place]]], limits: Limits, turns: Turns
    ) -> None:
        self._spawn = spawn
        self._limits = limits
        self._turns = turns
        self._part = limits.file_mb << 20
        """Bytes per file of returned pixels: the largest file that a session may write."""
        self._used = 0
        """Pictures that the process has decoded."""
        self._process: Process | None = None
        """None before the first picture."""
        self._files: Workspace | None = None

    async def decode(self, content: bytes) -> bytes:
        """The picture as a newly encoded JPEG or PNG. One at a time.

        Raises:
            NotShown: If it is not a picture, exceeds a limit, or breaks a fresh decoder.
            ServiceError: If no decoder can be started.
        """
        kind = check_picture(content, max_pixels=self._limits.max_pixels)
        raw = await self._decoded(content)
        # In a thread: a large one takes up to a second, and other sessions must go on.
        return await asyncio.to_thread(_encoded, raw, kind)

    async def _decoded(self, content: bytes) -> _Raw:
        if self._used >= PICTURES:
            await self._retire()
        if self._process is not None and not self._process.closed:
            # This picture may not be the cause: an earlier one may have damaged the process, or its fork
            # server died and was replaced, and its folder has gone.
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
            # Also on cancellation: otherwise the pending answer would be taken for the next one.
            self.abandon()
            raise

    def abandon(self) -> None:
        """Kill the process; its folder is left to the sandbox."""
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
            # In a thread: on a busy disk, removing the pixels of a picture has taken 0.2 s.
            await asyncio.to_thread(folders.remove, str(self._files.folder.parent))
            self._files = None

    async def _start(self) -> Process:
        await self._retire()
        process, place = await self._spawn(None)
        try:
            files = Workspace.of(place.folder, self._turns, max_files=8, max_bytes=self._limits.file_mb << 20)
        except OSError:
            # Its folder disappeared with a fork server that died in the meantime.
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
            # Check the decoded size too, not only the header's.
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
    """Several decoders, each created when first needed, so that one slow picture does not hold up others."""

    def __init__(
        self, spawn: Callable[[Place | None], Awaitable[tuple[Process, Place]]], limits: Limits, turns: Turns
    ) -> None:
        self._max_pixels = limits.max_pixels
        count = min(MOST_DECODERS, len(os.sched_getaffinity(0)))
        self.all = [ConfinedDecoder(spawn, limits, turns) for _ in range(max(2, count))]
        # The last one used is taken first, so a quiet sandbox keeps one process.
        self._free = list(self.all)
        self._room = asyncio.Semaphore(len(self.all))
        self._here = asyncio.Semaphore(len(self.all))
        """For pictures decoded by this process: a large one takes 600 MB of its memory."""

    async def decode(self, content: bytes, contained: bool = False) -> bytes:
        """As `ConfinedDecoder.decode`, several at a time.

        Files of contained code were written by Pillow or OpenCV, from pictures that this process reads
        anyway: they are decoded here, to the same pixels.
        """
        if contained:
            with contextlib.suppress(Refused):  # the confined decoder then says why
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
        """Kill all decoders; their folders are left to the sandbox."""
        for decoder in self.all:
            decoder.abandon()
