"""The sandbox as the trainer sees it: one fork server, many sessions, one folder."""

import asyncio
import io
import itertools
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import PIL.Image

from vtune.errors import DataError, ServiceError
from vtune.sandbox.forkserver import ForkServer
from vtune.sandbox.process import Process, ProtocolError
from vtune.sandbox.session import Session
from vtune.sandbox.types import Limits
from vtune.schema.decode import UNDECODABLE

READY_SECONDS = 20.0
ENDINGS = {"JPEG": "jpg"}
"""Where the ending of a file is not its format's name."""


class Sandbox:
    """Starts sessions and ends them all. Belongs to the event loop in which it was entered.

    `async with Sandbox() as sandbox:` leaves no process and no file behind, however the block ends; should
    this process be killed, the fork server cleans up in its stead.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._sessions: set[Session] = set()
        self._numbers = itertools.count(1)

    async def __aenter__(self) -> Self:
        self._spawning = asyncio.Lock()
        self._root = Path(tempfile.mkdtemp(prefix="vtune-sandbox-")).resolve()
        try:
            self._server = await ForkServer.start(self._root)
        except BaseException:
            shutil.rmtree(self._root, ignore_errors=True)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._server.end()
        finally:
            for session in self._sessions:
                session.abandon()
            self._sessions.clear()
            shutil.rmtree(self._root, ignore_errors=True)

    def info(self) -> dict[str, Any]:
        """What isolation is in force, and the limits of a session."""
        return {**self._server.facts, "limits": asdict(self.limits)}

    async def open(self, images: Sequence[bytes], *, seed: int) -> Session:
        """Start a session.

        Args:
            images: The input images as encoded files; the session gets copies.
            seed: Of its random generators; the same seed and code give the same output.

        Raises:
            DataError: If an input is not an image.
            ServiceError: If the sandbox cannot start it.
        """
        names = tuple(f"image_{number}.{_ending(image, number)}" for number, image in enumerate(images))
        folder = self._root / f"s{next(self._numbers):06d}"
        request = self._request(folder, names, seed)
        session = Session(folder, names, self.limits, partial(self._spawn, request), self._sessions.discard)
        try:
            folder.mkdir(parents=True)
            for name, image in zip(names, images, strict=True):
                path = folder / name
                path.write_bytes(image)
                path.chmod(0o444)
            await session.start()
        except OSError as error:
            await session.close()
            raise ServiceError(
                f"the sandbox cannot write its workspace: {error}", where=str(folder)
            ) from error
        except BaseException:
            await session.close()
            raise
        self._sessions.add(session)
        return session

    async def _spawn(self, request: dict[str, Any]) -> Process:
        """Start a process for a session; a fork server that is or falls dead is replaced once.

        Raises:
            ServiceError: If that fails.
        """
        server = self._server
        try:
            return await self._spawn_once(request)
        except ServiceError:
            if server is self._server and server.alive():
                raise
        return await self._spawn_once(request)

    async def _spawn_once(self, request: dict[str, Any]) -> Process:
        async with self._spawning:
            if not self._server.alive():
                self._server.abandon()
                self._root.mkdir(exist_ok=True)
                self._server = await ForkServer.start(self._root)
            process = await self._server.spawn(
                request, output_bytes=4 * self.limits.output_chars, max_blobs=self.limits.images_per_call
            )
        try:
            async with asyncio.timeout(READY_SECONDS):
                answer, _ = await process.answer()
            if "failed" in answer:
                raise ServiceError(f"the sandbox cannot confine a session: {answer['failed']}")
        except (OSError, EOFError, ProtocolError) as error:
            await process.end()
            raise ServiceError(f"the sandbox's session did not start: {error}") from error
        except BaseException:
            process.kill()
            process.close()
            raise
        return process

    def _request(self, folder: Path, names: tuple[str, ...], seed: int) -> dict[str, Any]:
        """What `guest.runner.Runner` and the fork server read."""
        limits = self.limits
        return {
            "folder": str(folder),
            "inputs": names,
            "seed": seed,
            "seconds": limits.seconds,
            "memory": limits.memory_mb << 20,
            "cpu_seconds": limits.cpu_seconds,
            "file_bytes": limits.file_mb << 20,
            "open_files": limits.open_files,
            "output_chars": limits.output_chars,
            "error_chars": limits.error_chars,
            "images_per_call": limits.images_per_call,
            "max_pixels": limits.max_pixels,
        }


def _ending(image: bytes, number: int) -> str:
    """The file ending of an encoded image."""
    try:
        with PIL.Image.open(io.BytesIO(image)) as picture:
            kind = picture.format or "png"
    except UNDECODABLE as error:
        raise DataError(
            f"input image {number} cannot be read: {error}", fix="store it as PNG or JPEG"
        ) from error
    return ENDINGS.get(kind, kind.lower())
