"""Several vLLM servers treated as one: new weights reach all of them at the same time."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from vtune.errors import RunFailed
from vtune.rollout.adapters import NAME
from vtune.rollout.server_calls import START, Silent, Unusable, call, post
from vtune.rollout.transfer import Link

FAILURES = 4
"""Consecutive failures after which a server is given up until the next weights arrive. It is retried after
0.5, 1 and 2 seconds."""

FRESH = "default"
"""vLLM's label for the weights that a server loaded itself."""

CUT_OFF = "vtune: cut off"
"""Our label for a server's weights during a transfer. If the transfer is cut off, partial weights stay in its
layers, and vLLM would add the next ones to them."""


@dataclass(slots=True, eq=False)
class Server:
    """A server and its known state."""

    url: str
    failures: int = 0
    """Consecutive failures."""
    again: float = 0.0
    """It is not used before this time (`time.monotonic`)."""
    why: str = ""
    """The reason for the latest failure."""
    starts: int = 0
    """How often it was found freshly started; a restarted server is no longer in the previous NCCL group."""
    checked: bool = False
    """Whether it is known to report the log-probabilities of the distribution that it samples from."""
    has: int = -1
    """The newest weights that it is known to have. Tracked per process: only one process transfers them."""
    looked: asyncio.Lock = field(default_factory=asyncio.Lock)
    late: float | None = None
    """When it was first found to lack the newest weights."""
    behind: bool = False
    """It had been given up and is now receiving the newest weights; it gets no turns until it has them."""
    turns: set[asyncio.Task[Any]] = field(default_factory=set)
    """Turns that it is generating."""

    @property
    def given_up(self) -> bool:
        """Whether it is not used until the next weights arrive."""
        return self.failures >= FAILURES

    def failed(self, why: str, *, asked: float) -> None:
        """Record a failure; requests already in progress at the previous one count as the same failure."""
        if asked >= self.again:
            self.failures += 1
            self.again = time.monotonic() + 0.25 * 2**self.failures
        self.why = why

    def worked(self) -> None:
        """Record a success; a server that has been given up in the meantime stays given up."""
        if not self.given_up:
            self.failures = 0

    def give_up(self, why: str) -> None:
        """Stop using it; its turns go to other servers, as a paused one would never finish them."""
        self.failures, self.why = FAILURES, why
        for turn in self.turns:
            turn.cancel()


class Fleet(Link):
    """All working servers as one: every call goes to all of them at once; one that fails is given up.

    A failed call is retried if repeating it is harmless, or if it never arrived.
    """

    def __init__(self, http: httpx2.AsyncClient, servers: Sequence[Server]) -> None:
        self._http = http
        self._servers = servers

    async def each(self, act: Callable[[Server], Awaitable[None]]) -> None:
        """Do something with every working server.

        Raises:
            RunFailed: If no server is left.
        """

        async def attempt(server: Server) -> None:
            try:
                await act(server)
            except Unusable as error:
                server.give_up(str(error))

        await asyncio.gather(*(attempt(server) for server in self.left()))
        self.left()

    def left(self) -> list[Server]:
        """The working servers.

        Raises:
            RunFailed: If there is none.
        """
        return usable(self._servers)

    @property
    def members(self) -> tuple[tuple[str, int], ...]:
        """The working servers, each with its `starts`."""
        return tuple((server.url, server.starts) for server in self.left())

    def why_lost(self, urls: Collection[str]) -> str:
        """Why the first given-up server among these failed; empty if all of them work."""
        lost = (server for server in self._servers if server.given_up and server.url in urls)
        return next((f"{server.url}: {server.why}" for server in lost), "")

    async def meet(self) -> None:
        """Find out which servers were restarted, and which an earlier weight transfer left unusable."""

        async def look(server: Server) -> None:
            try:
                said = await call(self._http, "GET", f"{server.url}/weight_info", repeat=True)
            except Silent as error:
                # It hangs in a broadcast whose sender is gone.
                raise Unusable(_cut_off(f"{error}, as after an interrupted weight transfer")) from error
            if said["weight_version"] == FRESH:
                server.starts += 1
                server.checked = False
            elif said["weight_version"] == CUT_OFF:
                raise Unusable(_cut_off("a weight transfer to it was interrupted"))

        await self.each(look)

    async def pause(self) -> None:
        """Stop generating and clear all caches except processed pictures, which pending turns rely on."""
        await self._tell("/pause?mode=keep&clear_cache=false", {}, repeat=True)
        await self.each(self._forget)

    async def _forget(self, server: Server) -> None:
        reset = "/reset_prefix_cache?reset_running_requests=true&reset_external=true"
        if not (await post(self._http, server.url, reset, {}, repeat=True))["success"]:
            raise Unusable("it could not reset its prefix cache")
        await post(self._http, server.url, "/reset_encoder_cache", {}, repeat=True)

    async def init_weight_transfer_engine(self, info: dict[str, Any]) -> None:
        """Form the group; each server's ranks follow those of the servers before it.

        All are called at the same time: each answers only once all have joined the group.

        Raises:
            RunFailed: If a server fails in the meantime: the others would wait for it.
        """
        servers, offset = self.left(), int(info.get("rank_offset", 0))
        calls = []
        try:
            for server, size in zip(servers, await self._sizes(servers), strict=True):
                place = info | ({"rank_offset": offset} if "rank_offset" in info else {})
                calls.append(
                    post(self._http, server.url, "/init_weight_transfer_engine", {"init_info": place})
                )
                offset += size
            await asyncio.gather(*calls)
        except Unusable as error:
            raise RunFailed(
                f"a vLLM server failed while the process group of the servers was formed: {error}",
                fix=f"check that all of them run, then continue with --resume: {START}",
            ) from error

    async def start_weight_update(self) -> None:
        """Begin a transfer; until it is complete, a label marks each server as one that must be restarted."""

        async def start(server: Server) -> None:
            try:
                await post(self._http, server.url, "/start_weight_update", {})
            except Unusable as error:
                raise Unusable(
                    _cut_off(str(error)) if "already active" in str(error) else str(error)
                ) from error
            named = {"new_version": CUT_OFF}
            await post(self._http, server.url, "/update_weight_version", named, repeat=True)

        await self.each(start)

    async def update_weights(self, info: dict[str, Any]) -> None:
        """Some weights are ready."""
        await self._tell("/update_weights", {"update_info": info})

    async def finish_weight_update(self, label: str) -> None:
        """All weights have arrived."""
        await self._tell("/finish_weight_update", {"weight_version": label})

    async def resume(self) -> None:
        """Generate again."""
        await self._tell("/resume", {}, repeat=True)

    async def take_adapters(self, path: Path, label: str) -> None:
        """Load adapters, called `label`, in place of the previous ones; nothing is generated meanwhile."""

        async def take(server: Server) -> None:
            # If loaded over the old ones, vLLM would read the folder again before every batch.
            listed = await call(self._http, "GET", f"{server.url}/v1/models", repeat=True)
            if NAME in [one["id"] for one in listed["data"]]:
                await post(self._http, server.url, "/v1/unload_lora_adapter", {"lora_name": NAME})
            given = {"lora_name": NAME, "lora_path": str(path)}
            await post(self._http, server.url, "/v1/load_lora_adapter", given)
            named = {"new_version": label}
            await post(self._http, server.url, "/update_weight_version", named, repeat=True)

        await self.each(take)

    async def workers(self) -> int:
        """Number of vLLM processes that hold weights, over all servers.

        Raises:
            RunFailed: If a server does not report its number.
        """
        try:
            return sum(await self._sizes(self.left()))
        except Unusable as error:
            raise RunFailed(
                f"a vLLM server does not say how many processes it has: {error}",
                fix=f"check that all of them run, then continue with --resume: {START}",
            ) from error

    async def _sizes(self, servers: Sequence[Server]) -> list[int]:
        asked = (call(self._http, "GET", f"{server.url}/get_world_size", repeat=True) for server in servers)
        return [int(said["world_size"]) for said in await asyncio.gather(*asked)]

    async def _tell(self, path: str, body: dict[str, Any], *, repeat: bool | None = None) -> None:
        async def tell(server: Server) -> None:
            await post(self._http, server.url, path, body, repeat=repeat)

        await self.each(tell)


def usable(servers: Sequence[Server]) -> list[Server]:
    """The servers that are not given up.

    Raises:
        RunFailed: If all are.
    """
    left = [server for server in servers if not server.given_up]
    if not left:
        why = "\n".join(f"  {server.url}: {server.why}" for server in servers)
        raise RunFailed(
            f"no vLLM server is left\n{why}", fix=f"start them, then continue with --resume: {START}"
        )
    return left


def _cut_off(why: str) -> str:
    return f"{why}; it is running, but has to be restarted"
