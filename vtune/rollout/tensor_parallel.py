"""Tensor parallelism: processes that share one vLLM, held by the first of them, on all their GPUs."""

import asyncio
import os
import pickle
import shutil
import socket
import tempfile
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Self

import torch
from PIL import Image

from vtune.errors import RecipeError, RunFailed
from vtune.rollout.submission import Answer
from vtune.schema.remembered import Remembered

LENGTH = 8
"""Bytes of the length prefix of a message."""

KEPT = 1 << 30
"""Size limit, in bytes, of the pictures cached for the next turn at either end; ours."""

LONG = 80
"""From this length in bytes, the path of the temporary folder leaves no room for a socket's name."""

Shown = tuple[tuple[int, int], bytes]
"""(width, height) and RGB bytes of a picture."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn, as another process requests it from the first process."""

    name: str
    token_ids: list[int]
    """One placeholder per picture."""
    images: tuple[Shown | None, ...]
    """Its pictures; None for one that was already sent, under its name."""
    names: tuple[str, ...]
    """Names of the pictures: see `Pixels.name`."""
    sampling: dict[str, Any]


Draw = Callable[[Turn, list[Image.Image]], Awaitable[Answer]]
"""Generates a turn from the given pictures."""


class Forgotten:
    """The answer to a turn with a picture that was already sent, but is no longer kept."""


class TensorParallelGroup:
    """The processes that share a vLLM (tensor parallelism), as seen by one of them.

    Args:
        index: Of this process; process 0 has the vLLM.
        size: Number of processes.
        group: Their process group, on the CPU; None for a group of one.
        address: The socket at which the first process generates for the others.
    """

    def __init__(self, index: int, size: int, group: Any, address: Path) -> None:
        self.index = index
        self.size = size
        self.group = group
        self.address = address
        # Barriers block, and the first process generates for the others in the meantime.
        self._waiting = ThreadPoolExecutor(1, thread_name_prefix="vtune-tensor-parallel")

    @classmethod
    def formed(cls, rank: int, world: int, size: int, *, patience: timedelta) -> Self:
        """The group of this process; all training processes call it together.

        Args:
            rank: Of this process; consecutive ranks form a group.
            world: Number of training processes.
            size: Processes per group.
            patience: Timeout of its barriers.

        Raises:
            RecipeError: If the processes do not divide evenly, or a group would span machines.
        """
        if world % size:
            raise RecipeError(
                f"{world} processes do not split into groups of rollout.tensor_parallel {size}",
                fix="choose a tensor_parallel that divides the processes per machine (--gpus)",
            )
        mine: Any = None
        for first in range(0, world, size):
            group = torch.distributed.new_group(
                list(range(first, first + size)), backend="gloo", timeout=patience
            )
            mine = group if first <= rank < first + size else mine
        address = socket_folder() / "turns" if rank % size == 0 else None
        gathered: list[Any] = [None] * size
        torch.distributed.all_gather_object(gathered, (socket.gethostname(), address), group=mine)
        if len({host for host, _ in gathered}) > 1:
            raise RecipeError(
                f"rollout.tensor_parallel {size} would spread one vLLM over several machines",
                fix="choose a tensor_parallel that divides the processes per machine (--gpus)",
            )
        return cls(rank % size, size, mine, gathered[0][1])

    @property
    def first(self) -> bool:
        """Whether this process has the vLLM."""
        return self.index == 0

    async def barrier(self, work: Coroutine[Any, Any, None] | None = None) -> None:
        """Do this process's work, and continue when all processes of the group have done theirs.

        Raises:
            RunFailed: In all of them, if the work of one raised it.
        """
        failure: RunFailed | None = None
        try:
            if work is not None:
                await work
        except RunFailed as error:
            failure = error
        loop = asyncio.get_running_loop()
        failures = await loop.run_in_executor(self._waiting, self.gather, failure)
        if found := [one for one in failures if one is not None]:
            raise found[0]

    def gather(self, value: Any) -> list[Any]:
        """The value from each process of the group, in all of them."""
        found: list[Any] = [None] * self.size
        torch.distributed.all_gather_object(found, value, group=self.group)
        return found

    def close(self) -> None:
        """Stop the barrier thread, and remove the socket."""
        self._waiting.shutdown()
        if self.first:
            shutil.rmtree(self.address.parent, ignore_errors=True)


def socket_folder() -> Path:
    """A new folder whose path is short enough for a socket: the kernel allows 107 bytes."""
    usual = Path(tempfile.gettempdir())
    return Path(tempfile.mkdtemp(prefix="vtune-", dir=usual if len(os.fsencode(usual)) < LONG else "/tmp"))


class TurnServer:
    """Lets the first process of a tensor-parallel group generate for the others.

    Args:
        address: Path of the socket.
        draw: Generates one turn.
        room: Size limit, in bytes, of the picture cache; cached pictures need not be sent again.
    """

    def __init__(self, address: Path, draw: Draw, *, room: int = KEPT) -> None:
        self._address = address
        self._draw = draw
        self._images: Remembered[str, Image.Image] = Remembered(
            room,
            lambda _, image: 4 * image.width * image.height,  # Pillow pads RGB to 4 bytes
        )
        self._server: asyncio.Server | None = None
        self._drawing: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Start listening, unless it already does."""
        if self._server is None:
            self._server = await asyncio.start_unix_server(self._serve, self._address)

    async def close(self) -> None:
        """Close the socket."""
        if self._server is not None:
            self._server.close()
        for task in self._drawing:
            task.cancel()
        await asyncio.gather(*self._drawing, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (message := await _read(reader)) is not None:
                number, turn = message
                task = asyncio.create_task(self._answer(number, turn, writer))
                self._drawing.add(task)
                task.add_done_callback(partial(self._drawn, writer))
        finally:
            writer.close()

    def _drawn(self, writer: asyncio.StreamWriter, task: "asyncio.Task[None]") -> None:
        self._drawing.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # Otherwise the client would wait for ever.
            writer.close()
            context = {"message": "a turn of another process failed", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)

    async def _answer(self, number: int, turn: Turn, writer: asyncio.StreamWriter) -> None:
        said: Answer | RunFailed | Forgotten
        try:
            images = self._shown(turn)
            said = Forgotten() if images is None else await self._draw(turn, images)
        except RunFailed as error:
            said = error
        _write(writer, (number, said))
        await writer.drain()

    def _shown(self, turn: Turn) -> list[Image.Image] | None:
        """The pictures of a turn; None if one of them is neither in it nor cached."""
        images = []
        for name, shown in zip(turn.names, turn.images, strict=True):
            if shown is None:
                image = self._images.at_hand(name)
            else:
                image = self._images.get(name, partial(Image.frombytes, "RGB", *shown))
            if image is None:
                return None
            images.append(image)
        return images


class TurnClient:
    """Requests turns for another process of a tensor-parallel group.

    A picture is sent with the first turn that shows it, and not again: a conversation shows all of its
    pictures in each turn, and the generating process serves many clients.

    Args:
        address: Path of the socket.
    """

    def __init__(self, address: Path) -> None:
        self._address = address
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._asked: dict[int, asyncio.Future[Answer | Forgotten]] = {}
        self._number = 0
        self._sent: set[str] = set()
        """Names of the pictures that the server has received."""

    async def open(self) -> None:
        """Connect, unless already connected; the server must be listening."""
        if self._writer is None:
            reader, self._writer = await asyncio.open_unix_connection(str(self._address))
            self._reading = asyncio.create_task(self._listen(reader))

    async def ask(self, turn: Turn) -> Answer:
        """Request one turn.

        Raises:
            RunFailed: If it could not be generated, or the server is gone.
        """
        # No await before the turn is written: a turn that omits a picture must not overtake the one that
        # sends it.
        known = [name in self._sent for name in turn.names]
        self._sent.update(turn.names)
        said = await self._ask(
            replace(turn, images=tuple(None if k else i for k, i in zip(known, turn.images, strict=True)))
        )
        if isinstance(said, Forgotten):
            said = await self._ask(turn)
        assert not isinstance(said, Forgotten)
        return said

    def forget(self) -> None:
        """Send each picture again: the next step has different ones."""
        self._sent.clear()

    async def _ask(self, turn: Turn) -> Answer | Forgotten:
        if self._writer is None or self._reading is None or self._reading.done():
            raise _gone()
        self._number += 1
        number = self._number
        answer: asyncio.Future[Answer | Forgotten] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        try:
            _write(self._writer, (number, turn))
            await self._writer.drain()
            return await answer
        except ConnectionError as error:
            raise _gone() from error
        finally:
            del self._asked[number]

    async def close(self) -> None:
        """Close the connection."""
        if self._writer is not None and self._reading is not None:
            self._writer.close()
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        try:
            while (message := await _read(reader)) is not None:
                number, said = message
                waiting = self._asked.get(number)
                if waiting is None or waiting.done():  # nobody waits for it any more
                    continue
                if isinstance(said, RunFailed):
                    waiting.set_exception(said)
                else:
                    waiting.set_result(said)
        finally:
            for waiting in self._asked.values():
                if not waiting.done():
                    waiting.set_exception(_gone())


def _gone() -> RunFailed:
    return RunFailed(
        "the process that generates for this one is gone", fix="look at its log, then continue with --resume"
    )


def _write(writer: asyncio.StreamWriter, message: Any) -> None:
    # Pickle is safe here: processes of one run, on a socket in a folder that only its user can enter.
    data = pickle.dumps(message)
    writer.write(len(data).to_bytes(LENGTH, "big") + data)


async def _read(reader: asyncio.StreamReader) -> Any:
    """The next message; None if the connection was closed."""
    try:
        size = int.from_bytes(await reader.readexactly(LENGTH), "big")
        return pickle.loads(await reader.readexactly(size))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
