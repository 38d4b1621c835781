"""An engine in its own thread and event loop, which runs on while this process's loop is blocked."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import torch

from vtune.models.device import use_device
from vtune.rollout.engine import Completion, Engine, Request, Weights

T = TypeVar("T")


class EngineThread(Engine):
    """Lets the first process of a tensor-parallel group generate for the others even while it waits for them.

    Args:
        make: Creates the engine; called in the thread.
        device: This process's device.
    """

    def __init__(self, make: Callable[[], Engine], device: torch.device) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="vtune-engine", daemon=True)
        self._thread.start()

        async def made() -> Engine:
            use_device(device)
            return make()

        self._engine = asyncio.run_coroutine_threadsafe(made(), self._loop).result()

    async def generate(self, request: Request) -> Completion:
        """Generate one turn; see the engine."""
        return await self._there(self._engine.generate(request))

    async def take(self, weights: Weights, version: int) -> None:
        """Generate with these weights from now on; see the engine."""
        await self._there(self._engine.take(weights, version))

    async def rest(self) -> None:
        """Generate nothing until the next `take`."""
        await self._there(self._engine.rest())

    async def aclose(self) -> None:
        """Close the engine and its thread."""
        try:
            await self._there(self._engine.aclose())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _there(self, call: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, self._loop))
