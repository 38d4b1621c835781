"""One trajectory's code: a process that keeps its state between calls, and a folder."""

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from vtune.errors import ServiceError
from vtune.sandbox.contained import is_contained
from vtune.sandbox.decoding import Decoder
from vtune.sandbox.forkserver import Place
from vtune.sandbox.kept import FORGET_SECONDS
from vtune.sandbox.process import Process, ProtocolError, for_seconds
from vtune.sandbox.repair import one_line, repair, unwrap
from vtune.sandbox.reply import Answer, checked, crop_of, nameless, without_surrogates
from vtune.sandbox.scan import Scanner
from vtune.sandbox.turns import Turns
from vtune.sandbox.types import Execution, Limits
from vtune.sandbox.watch import Stopped, watch
from vtune.sandbox.workspace import NotShown, Workspace

STATE_LOST = "the session was restarted, all variables are lost (files are kept)"
ADOPT_SECONDS = 20.0
"""Time for a process to receive the inputs: ours, generous for a busy machine."""

Spawn = Callable[[Place | None], Awaitable[tuple[Process, Place]]]
Keep = Callable[[Process, Place], bool]
"""Takes a process that was told to forget, and where it lives; False if it is not wanted."""


class _Unparsed(Exception):
    """The process reports that the code does not parse as written."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        """Time until it reported that."""


class Session:
    """Runs the code of one trajectory. Made by `Sandbox.open`; one call at a time."""

    def __init__(
        self,
        images: Sequence[tuple[str, bytes]],
        seed: int,
        limits: Limits,
        turns: Turns,
        spawn: Spawn,
        decode: Decoder,
        keep: Keep,
        remove: Callable[[str], Coroutine[None, None, None]],
        forget: Callable[["Session"], object],
        under_way: "set[Session]",
        link_pixels: Callable[[bytes, str], bool],
    ) -> None:
        self.image_names = tuple(name for name, _ in images)
        """File names of the input images, as the model's code sees them."""
        self._images = images
        self._seed = seed
        self._limits = limits
        self._turns = turns
        self._spawn = spawn
        self._decode = decode
        self._keep = keep
        self._remove = remove
        self._forget = forget
        self._under_way = under_way
        """Sessions of this sandbox that are in a call right now."""
        self._link_pixels = link_pixels
        self._unasked: dict[str, Any] = {}
        """Message to send to the process together with the next code."""
        self._place: Place | None = None
        self._process: Process | None = None
        self._files: Workspace | None = None
        self._scanner = Scanner()
        self._removing: list[asyncio.Task[None]] = []
        """Tasks that remove the files of lost processes."""
        self._turn = asyncio.Lock()
        self._began = 0.0
        """Start of the current call, in `time.perf_counter` time."""
        self._contained = True
        """Whether all its code was: the process can do nothing by itself, and is as good as new."""
        self._failed = ""
        """Why the sandbox under this session failed; nothing runs after that."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def workspace(self) -> Path:
        """The folder that the code works in."""
        assert self._files is not None
        return self._files.folder

    @property
    def pid(self) -> int:
        """Id of the process that runs the code now; -1 if there is none."""
        return -1 if self._process is None or self._process.closed else self._process.pid

    async def start(self) -> None:
        """Get a process and give it the inputs; also used after one was lost.

        Raises:
            ServiceError: If the sandbox cannot provide one.
        """
        while True:
            self._process, self._place = await self._spawn(self._place)
            try:
                await self._begin(self._process, self._place)
            except (OSError, EOFError, ProtocolError) as error:
                self._drop()
                if not self._process.kept:
                    why = str(error) or type(error).__name__
                    raise ServiceError(f"the sandbox cannot start a session: {why}") from error
                # A kept process may have ended with its fork server; a new process reports what is wrong.
                await self._leave()
                self._files = self._place = None
            except BaseException:
                self._drop()
                raise
            else:
                return

    async def _begin(self, process: Process, place: Place) -> None:
        """Give the inputs to a process."""
        if self._files is None:
            self._files = Workspace.of(
                place.folder,
                self._turns,
                max_files=self._limits.workspace_files,
                max_bytes=self._limits.workspace_mb << 20,
            )
            for name, content in self._images:
                await self._files.put(name, content)
                await self._files.put_pixels(name, content, self._link_pixels)
        self._files.link_inputs(self.image_names)
        message: dict[str, Any] = {
            "seed": self._seed,
            "inputs": self.image_names,
            "pixels": self._files.pixels(),
        }
        if None not in message["pixels"]:
            # This takes no time and cannot fail, so the process need not wake up twice.
            self._unasked = message
            return
        async with asyncio.timeout(ADOPT_SECONDS):
            # It has run no code that acts by itself, so it may keep running and decode its pictures.
            answer = await process.ask(message, stop=False)
        if not answer.get("ready"):
            raise ProtocolError(str(answer.get("failed", answer)))

    async def _leave(self) -> None:
        """Close the files and remove them."""
        if self._files is not None:
            self._files.close()
        if self._place is not None:
            await self._remove(self._place.folder)

    async def run(self, code: str, *, raw: bool = False) -> Execution:
        """Run code in the session's namespace.

        Never raises because of what the code does; if the sandbox itself fails, the status is `infra`. If the
        call is cancelled, the process is killed, and the next call starts a new one.

        Args:
            code: As the model wrote it.
            raw: Run it as it is, without repair, scan or path changes. For attacks, to see what still
                holds without them.
        """
        async with self._turn:
            self._began = time.perf_counter()
            self._under_way.add(self)
            try:
                execution = await self._run(code, raw=raw)
            except (ServiceError, OSError) as error:
                # Everything that code can cause is handled elsewhere, so the machine is at fault.
                self._drop()
                self._failed = str(error)
                execution = Execution(status="infra", error=self._failed)
            finally:
                self._under_way.remove(self)
            # If the code ran, the time is already known.
            seconds = time.perf_counter() - self._began
            return execution if execution.seconds else replace(execution, seconds=seconds)

    async def close(self) -> None:
        """End the process and remove the folder; may be called again. A call that is still running is ended.

        If the code was contained, both are kept for another session instead.
        """
        reusable = self._contained and not self._failed and not self._turn.locked()
        self._failed = self._failed or "the session is closed"
        if not reusable and self._process is not None and not self._process.closed:
            self._process.kill()
        async with self._turn:
            try:
                if reusable and await self._handed_on():
                    self._process = self._place = None
                elif self._process is not None:
                    await self._process.end()
            finally:
                self._forget(self)
                await asyncio.gather(*self._removing)
                await self._leave()

    async def _handed_on(self) -> bool:
        """Whether the process was accepted for another session; it is then forgetting this trajectory."""
        process, place, files = self._process, self._place, self._files
        if not (process and place and files) or process.closed:
            return False
        try:
            if not await files.cleared():
                return False
            await process.tell({"forget": True}, for_seconds(FORGET_SECONDS))
        except (OSError, EOFError, ProtocolError):
            return False
        except BaseException:
            self._drop()
            raise
        return self._keep(process, place)

    def abandon(self) -> None:
        """Release everything without waiting for the process to end; the folder is left to the caller."""
        self._drop()
        if self._files is not None:
            self._files.close()

    def _drop(self) -> None:
        """Kill the process without waiting for its end."""
        if self._process is not None and not self._process.closed:
            self._process.kill()
            self._process.close()

    async def _run(self, code: str, *, raw: bool) -> Execution:
        if self._failed:
            return Execution(status="infra", error=self._failed)
        if len(code) > self._limits.code_chars:
            return Execution(
                status="error", error=f"the code is longer than {self._limits.code_chars} characters"
            )
        if raw:
            return await self._ask(code, raw=True)
        try:
            source = unwrap(code)
        except ValueError as error:
            return Execution(status="error", error=one_line(error))
        scanner, taken = self._scanner, 0.0
        words = scanner.plain(source)
        if words is not None:
            # The session parses it anyway.
            try:
                execution = await self._ask(source, repairable=True)
            except _Unparsed as unparsed:
                taken = unparsed.seconds
            else:
                scanner.bind(words)
                return execution
        try:
            source, tree = repair(source)
            forbidden = scanner.scan(source, tree)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            return Execution(status="error", error=one_line(error))
        if forbidden:
            return Execution(status="blocked", error=f"blocked by policy: {', '.join(forbidden)}")
        return await self._ask(source, taken=taken)

    async def _ask(
        self, source: str, *, raw: bool = False, repairable: bool = False, taken: float = 0.0
    ) -> Execution:
        """Let the process run the code.

        Args:
            source: The code.
            raw: As for `run`.
            repairable: If the process cannot parse the code, it may be repaired and sent again.
            taken: Seconds of the call's time that an earlier attempt took.

        Raises:
            _Unparsed: If the code is repairable, and the process reports that it does not parse.
        """
        if self._process is None or self._process.closed:
            await self.start()
        process, files = self._process, self._files
        assert process is not None
        assert files is not None
        try:
            try:
                message = {**self._unasked, "code": source, "raw": raw, "repairable": repairable}
                self._unasked = {}
                alone = len(self._under_way) == 1
                look = watch(process, files, self._limits, self._turns, taken)
                began = time.monotonic()
                judge = functools.partial(self._judge, source, raw=raw)
                reply = await process.ask(message, look, alone=alone, meanwhile=judge)
                if repairable and reply.get("status") == "unparsed":
                    raise _Unparsed(time.monotonic() - began)
                answer = checked(reply, len(self.image_names))
            except Stopped as stopped:
                why = str(stopped)
            except ProtocolError:
                why = "the code interfered with the session's own answers"
            except (OSError, EOFError):
                why = "the code ended its own process or ran out of memory or CPU time"
            else:
                # Many sessions may have answered at the same moment.
                await self._turns.next()
                found, quota = files.new_pictures(answer.written)
                if not quota:
                    return await self._answered(process, files, answer, found)
                why = f"the code left {quota}"
            # At once: the code may be in the middle of an attack on the disk.
            process.kill()
            if not await process.server.lives():
                # A dead fork server takes its sessions with it: not the code's doing.
                raise ServiceError("the sandbox's fork server died")
            files.check_there()
            return await self._killed(process, files, why)
        except _Unparsed:
            raise
        except BaseException:
            # Also on cancellation: otherwise the pending answer would be taken for that of the next call.
            self._drop()
            raise

    def _judge(self, source: str, *, raw: bool) -> None:
        self._contained = self._contained and not raw and is_contained(source)

    async def _answered(
        self, process: Process, files: Workspace, answer: Answer, found: Sequence[str]
    ) -> Execution:
        execution = await self._execution(answer, files, found, process.printed())
        if not process.server.alive():
            # The files may have been removed while the code, or this process, was using them.
            raise ServiceError("the sandbox's fork server died")
        if answer.status != "ok":
            self._contained = False
            files.check_there()
        return execution

    async def _killed(self, process: Process, files: Workspace, why: str) -> Execution:
        self._contained = False
        printed = process.printed()
        await process.end()
        # Names that the lost process had imported are gone with it.
        self._scanner = Scanner()
        found, quota = files.new_pictures(())
        execution = await self._execution(Answer("killed", "", (), frozenset(), ()), files, found, printed)
        error = f"{why}; {STATE_LOST}"
        if quota:
            # Otherwise a new process would be stopped because of the old files.
            self._removing.append(asyncio.create_task(self._remove(files.set_aside())))
            error = f"{why}; the session was restarted, all variables and files are lost"
        return replace(execution, error=error)

    async def _execution(
        self, answer: Answer, files: Workspace, found: Sequence[str], printed: str
    ) -> Execution:
        """What the call printed, wrote and showed; `found` are its new pictures."""
        limits = self._limits
        images: list[bytes] = []
        shown: dict[str, int] = {}
        notes = []
        if len(found) > limits.images_per_call:
            notes.append(f"only the first {limits.images_per_call} of {len(found)} new pictures are shown")
        for name in found[: limits.images_per_call]:
            try:
                if name in answer.broken:
                    raise NotShown("it is not a picture")
                content = await files.read(name, max_bytes=limits.file_mb << 20)
                image = await self._decode(content, self._contained)
            except NotShown as reason:
                notes.append(f"{without_surrogates(name)} is not shown: {reason}")
            else:
                shown[name] = len(images)
                images.append(image)
        # Cut off whatever bypassed the session's own character limit.
        printed = printed[: limits.output_chars]
        assert self._place is not None
        folder = self._place.folder
        lines = [nameless(printed, folder).rstrip("\n"), *(f"(note: {note})" for note in notes)]
        # A status from the session is one of the values checked above.
        status: Any = answer.status
        return Execution(
            status=status,
            output="\n".join(line for line in lines if line),
            error=nameless(answer.error, folder)[-limits.error_chars :],
            images=tuple(images),
            names=tuple(without_surrogates(name) for name in shown),
            crops=tuple(crop_of(crop, len(self.image_names), shown) for crop in answer.crops),
            seconds=time.perf_counter() - self._began,
        )
