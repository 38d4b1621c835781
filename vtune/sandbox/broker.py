"""The sandbox as the trainer sees it: one fork server, many sessions, one folder."""

import asyncio
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from vtune.errors import DataError, SandboxUnavailable, ServiceError
from vtune.sandbox.capacity import capacity
from vtune.sandbox.decoding import ConfinedDecoders, decode_here
from vtune.sandbox.forkserver import ForkServer, Place
from vtune.sandbox.guest import folders
from vtune.sandbox.guest.settings import Settings
from vtune.sandbox.kept import KeptProcesses
from vtune.sandbox.pixel_files import PixelFiles
from vtune.sandbox.process import Process, ProtocolError, for_seconds
from vtune.sandbox.session import Session
from vtune.sandbox.turns import Turns
from vtune.sandbox.types import Decode, Isolation, Layer, Limits
from vtune.schema.decode import eight_bit_file, is_deep
from vtune.schema.pixels import (
    MAX_PACKED_PIXELS,
    MAX_RATIO,
    MAX_SCANNED,
    MAX_SCANS,
    MAX_SIDE,
    REMEDY,
    Refused,
    check_head,
)

READY_SECONDS = 20.0
ENDINGS = {"JPEG": "jpg"}
"""Formats whose file ending is not the format's name."""
PIXELS = "pixels"
"""Name of the folder for pixel files, in the sandbox's own folder."""
UNSAFE = (
    "WARNING: the sandbox is off (unsafe): code that a model writes can read, change and send "
    "whatever you can. Every trajectory is marked.\n"
)
NEWEST_LANDLOCK = 99
"""No cap on the interface version."""


class Sandbox:
    """Starts sessions and ends them all. Belongs to the event loop in which it was entered.

    `async with Sandbox() as sandbox:` leaves no process and no file behind, however the block ends; if this
    process is killed, the sandbox's guardian cleans up instead.

    Args:
        limits: Limits of each session, and the number of sessions.
        isolation: The tier; `auto` takes the best one and refuses to run without any.
        warm: Idle sessions kept ready at most: eight, and more once that many have lived at the same time. Up
            to as many processes that ran only contained code are kept for later sessions.
        decode: How returned pictures are decoded.
        without: Layers to leave out, for negative controls of attack suites.
        landlock_abi: Highest Landlock interface to use, to test what an older kernel would enforce.
        at_once: Whether the fork server starts with the block; otherwise it starts with the first session.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        isolation: Isolation = "auto",
        warm: int = 8,
        decode: Decode = "confined",
        without: frozenset[Layer] = frozenset(),
        landlock_abi: int = NEWEST_LANDLOCK,
        at_once: bool = True,
    ) -> None:
        self.limits = limits or Limits()
        self._isolation = isolation
        self._warm = warm
        self._decode = decode
        self._without = without
        self._landlock_abi = landlock_abi
        self._at_once = at_once
        self.turns = Turns()
        """For the event loop's work for all sessions, and for other work that runs alongside."""
        self._server: ForkServer | None = None
        self._sessions: set[Session] = set()
        self._under_way: set[Session] = set()
        """Sessions that are in a call right now."""
        self._ended = False

    async def __aenter__(self) -> Self:
        if not sys.platform.startswith("linux"):
            raise SandboxUnavailable(f"the sandbox needs Linux, this is {sys.platform}")
        self._replacing = asyncio.Lock()
        self.capacity = capacity(self.limits.sessions)
        """Sessions that may live at the same time; beyond that, `open` waits for one of them to end."""
        self._free = asyncio.Semaphore(self.capacity)
        self._kept = KeptProcesses(min(self._warm, self.capacity), self.limits.cpu_seconds)
        self._confined = ConfinedDecoders(self._spawn, self.limits, self.turns)
        if self._at_once:
            await self._up()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended = True
        try:
            async with self._replacing:  # a server that is just starting is ended too
                if self._server is not None:
                    await self._server.end()
        finally:
            for session in self._sessions:
                session.abandon()
                # Wake up those that wait for room: no room will become free.
                self._free.release()
            self._sessions.clear()
            self._kept.abandon()
            self._confined.abandon()
            self.turns.end()
            if self._server is not None:
                folders.remove(str(self.folder))

    @property
    def folder(self) -> Path:
        """The folder of its sessions."""
        return Path(self._settings.folder)

    @property
    def zygote_pid(self) -> int:
        """Process id of the fork server."""
        return self._running.zygote

    async def children(self) -> int:
        """How many child processes the fork server has.

        Raises:
            ServiceError: If it does not answer.
        """
        try:
            return await self._running.children()
        except (OSError, EOFError) as error:
            raise ServiceError("the sandbox's fork server died") from error

    @property
    def tier(self) -> str:
        """The protection in force: `namespaces`, `flat` or `unsafe`."""
        return str(self._running.facts["tier"]["name"])

    @property
    def live(self) -> int:
        """Sessions that have been opened and have not ended yet."""
        return len(self._sessions)

    def info(self) -> dict[str, Any]:
        """The protection in force, why layers are missing, and the limits."""
        facts = self._running.facts
        tier = facts["tier"]
        layers = ("landlock", "seccomp", "namespaces", "user_namespace", "private_uid")
        return {
            "tier": tier["name"],
            "layers": {layer: tier[layer] for layer in layers},
            "notes": tier["notes"],
            "uid": facts["uid"],
            "capacity": self.capacity,
            "limits": asdict(self.limits),
        }

    async def open(self, images: Sequence[bytes], *, seed: int) -> Session:
        """Start a session; waits while the maximum number of sessions is alive.

        Args:
            images: The input images as encoded files; the session gets copies.
            seed: Seed of its random generators; the same seed and code give the same output.

        Raises:
            DataError: If an input is not an image.
            ServiceError: If the sandbox cannot start it.
        """
        names = image_names(images)
        # Converted here, since code may open the file itself.
        shown = [await asyncio.to_thread(eight_bit_file, one) if is_deep(one) else one for one in images]
        named = list(zip(names, shown, strict=True))
        await self._free.acquire()
        decode = self._confined.decode if self._decode == "confined" else decode_here(self.limits)
        session = Session(
            named,
            seed,
            self.limits,
            self.turns,
            self._spawn,
            decode,
            self._keep,
            self._remove,
            self._forget,
            self._under_way,
            lambda content, path: self._pixels.link(content, path),  # of the current fork server
        )
        self._sessions.add(session)
        try:
            await session.start()
        except BaseException:
            await session.close()
            raise
        return session

    def _keep(self, process: Process, place: Place) -> bool:
        return not self._ended and self._kept.keep(process, place)

    def _forget(self, session: Session) -> None:
        if session in self._sessions:
            self._sessions.discard(session)
            self._free.release()

    async def _remove(self, folder: str) -> None:
        """Remove the folder of a session that has ended.

        Raises:
            OSError: If it cannot be removed.
        """
        try:
            await self._running.remove(folder)
        except (OSError, EOFError):
            # The fork server has gone; its cleanup may be removing the same folder right now.
            folders.remove(folder)

    @property
    def _running(self) -> ForkServer:
        """The fork server.

        Raises:
            ServiceError: If none has been started yet.
        """
        if self._server is None:
            raise ServiceError("the sandbox has not started a session yet")
        return self._server

    async def _up(self) -> ForkServer:
        """The fork server, which is started if necessary.

        Raises:
            ServiceError: If it does not start, or the sandbox has ended in the meantime.
        """
        async with self._replacing:
            self._check_open()
            if self._server is None:
                if self._isolation == "unsafe":
                    sys.stderr.write(UNSAFE)
                self._server = await self._start_server()
        return self._server

    def _check_open(self) -> None:
        if self._ended:
            raise ServiceError("the sandbox has ended")

    async def _start_server(self) -> ForkServer:
        """Start a fork server with a new folder."""
        limits = self.limits
        # Sessions with their own users must be able to pass through it; nobody else may list it.
        folder = Path(tempfile.mkdtemp(prefix="vtune-sandbox-")).resolve()
        folder.chmod(0o711)
        self._pixels = PixelFiles(folder / PIXELS)
        self._settings = Settings(
            folder=str(folder),
            trainer=os.getpid(),
            isolation=self._isolation,
            without=tuple(sorted(self._without)),
            landlock_abi=self._landlock_abi,
            warm=min(self._warm, self.capacity),
            seconds=limits.seconds,
            memory=limits.memory_mb << 20,
            cpu_seconds=limits.cpu_seconds,
            file_bytes=limits.file_mb << 20,
            open_files=limits.open_files,
            output_chars=limits.output_chars,
            images_per_call=limits.images_per_call,
            max_pixels=limits.max_pixels,
            max_side=MAX_SIDE,
            max_ratio=MAX_RATIO,
            max_scans=MAX_SCANS,
            max_scanned=MAX_SCANNED,
            max_packed_pixels=MAX_PACKED_PIXELS,
        )
        try:
            return await ForkServer.start(self._settings)
        except BaseException:
            folders.remove(str(folder))
            raise

    async def _replace_server(self) -> None:
        """Start another fork server, unless that has already been done in the meantime."""
        async with self._replacing:
            self._check_open()
            if not self._running.alive():
                await self._running.end()
                folders.remove(str(self.folder))
                tier = self.tier
                self._server = await self._start_server()
                if self.tier != tier:
                    found = self.tier
                    await self._server.end()
                    raise SandboxUnavailable(
                        f"the sandbox started as {tier} and would continue as {found}",
                        fix="`vtune doctor` shows what has changed on this machine",
                    )

    async def _spawn(self, place: Place | None) -> tuple[Process, Place]:
        """A process for a session; if the fork server is dead or dies, it is replaced once.

        Raises:
            ServiceError: If that fails.
        """
        server = await self._up()
        if place is None and (kept := await self._kept.take(server, self._remove)):
            return kept
        try:
            return await self._spawn_once(place)
        except ServiceError:
            if server is self._server and await server.lives():
                raise
        return await self._spawn_once(place)

    async def _spawn_once(self, place: Place | None) -> tuple[Process, Place]:
        self._check_open()
        if not self._running.alive():
            await self._replace_server()
            self._check_open()  # if the sandbox is ending, that waited for the new server and ends it too
        if place is not None and not place.folder.startswith(f"{self.folder}/"):
            raise ServiceError("the sandbox's fork server died, and the session's files with it")
        process, given = await self._running.spawn(place)
        try:
            answer = await process.answer(for_seconds(READY_SECONDS))
            if "failed" in answer:
                raise ServiceError(f"the sandbox cannot confine a session: {answer['failed']}")
        except BaseException as error:
            process.kill()
            process.close()
            if place is None:
                folders.remove(given.folder)
            if isinstance(error, OSError | EOFError | ProtocolError):
                why = str(error) or type(error).__name__
                raise ServiceError(f"the sandbox's session did not start: {why}") from error
            raise
        return process, given


def image_names(images: Sequence[bytes]) -> tuple[str, ...]:
    """File names of input images, as a session's code sees them.

    Raises:
        DataError: If one is not an image.
    """
    return tuple(f"image_{number}.{_ending(image, number)}" for number, image in enumerate(images))


def _ending(image: bytes, number: int) -> str:
    """The file ending of an encoded image."""
    try:
        kind = check_head(image).kind
    except Refused as refused:
        raise DataError(
            f"input image {number} (counted from 0) cannot be used: {refused}", fix=REMEDY
        ) from refused
    return ENDINGS.get(kind, kind.lower())
