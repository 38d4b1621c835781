"""Weight transfer to vLLM servers on other GPUs, by NCCL broadcast."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import CancelledError, Future
from typing import Any

import torch
from torch.distributed import DistError
from vllm.distributed.weight_transfer.factory import WeightTransferTrainerFactory
from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo

from vtune.errors import RunFailed
from vtune.models.device import device_thread
from vtune.models.network import free_port
from vtune.models.policy import Policy
from vtune.rollout.engine import Weights
from vtune.rollout.fleet import Fleet
from vtune.rollout.server_calls import START
from vtune.rollout.transfer import BlockingLink, trainer_address
from vtune.rollout.vllm_senders import Source

LOOK = 1.0
"""Seconds between checks of whether the servers receiving weights still work."""


def nccl_sender(
    policy: Policy, device: torch.device, *, first: bool
) -> Callable[[Weights, Fleet, str], Awaitable[None]]:
    """Sends weights to servers on other GPUs; every training process calls it.

    Args:
        policy: The policy whose weights are sent.
        device: This process's GPU.
        first: Whether this process sends; the others only take part in gathering.
    """
    source = Source(policy)
    senders: dict[tuple[tuple[str, int], ...], Any] = {}
    thread = device_thread(device)

    async def send(weights: Weights, fleet: Fleet, label: str) -> None:
        source.weights = weights
        if not first:
            for _ in source.iter_full():
                pass
            return
        await fleet.meet()
        await fleet.pause()
        loop = asyncio.get_running_loop()
        # A new group is formed if a server is gone, has come back, or was restarted.
        members = fleet.members
        client = _GroupLink(fleet, loop, label, members)
        if members not in senders:
            for old in senders.values():
                await loop.run_in_executor(thread, old.shutdown)
            senders.clear()
            info = NCCLTrainerInitInfo(
                master_address=trainer_address([url for url, _ in members]),
                master_port=free_port(),
                world_size=1 + await fleet.workers(),
                rank=0,
                packed_buffer_size_bytes=source.buffer_bytes,
            )
            senders[members] = await loop.run_in_executor(thread, _joined, info, client, source)
        sender = senders[members]
        sender.client = client
        sending = loop.run_in_executor(thread, _sent, sender, device)
        await _watched(sending, client, sender)
        await fleet.resume()

    return send


class _GroupLink(BlockingLink):
    """A link to servers in one NCCL group: none of them can be left out of a broadcast."""

    def __init__(
        self,
        fleet: Fleet,
        loop: asyncio.AbstractEventLoop,
        label: str,
        members: Sequence[tuple[str, int]],
    ) -> None:
        super().__init__(fleet, loop, label)
        self._fleet = fleet
        self._members = members
        self._receiving: Future[None] | None = None
        self._cut_off: RunFailed | None = None
        self.failure: RunFailed | None = None
        """Why the group was not formed."""

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Agree on how weights will be sent."""
        try:
            super().init_weight_transfer_engine(init_info)
        except RunFailed as error:
            self.failure = error
            raise

    def start_weight_update(self) -> None:
        """Begin a transfer to the whole group.

        Raises:
            RunFailed: If a server of the group has failed.
        """
        super().start_weight_update()
        if self.why_lost:
            raise self.lost()

    def update_weights(self, update_info: Any) -> None:
        """Broadcast weights; any error is raised by `finish_weight_update`.

        If it were raised here, vLLM would not begin to gather, and the other training processes would wait.
        """
        self._cut_off = None
        self._receiving = asyncio.run_coroutine_threadsafe(self._link.update_weights(update_info), self._loop)
        try:
            self._receiving.result()
        except CancelledError:
            self._cut_off = self.lost("the run ends")
        except RunFailed as error:
            self._cut_off = error

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """All weights have been broadcast.

        Raises:
            RunFailed: If the broadcast was cut off.
        """
        if self._cut_off is not None:
            raise self._cut_off
        super().finish_weight_update(weight_version)

    @property
    def broken(self) -> bool:
        """Whether a server has dropped out of the broadcast in progress; all others wait for it."""
        if self._receiving is None:
            return False
        if not self._receiving.done():
            return bool(self.why_lost)
        return self._receiving.cancelled() or self._receiving.exception() is not None

    @property
    def why_lost(self) -> str:
        """Why the first failed server of the group failed; empty while all of them work."""
        return self._fleet.why_lost([url for url, _ in self._members])

    def lost(self, why: str = "") -> RunFailed:
        """The error to raise; `why` is used if no server is known to have failed."""
        return RunFailed(
            f"a vLLM server failed while weights were sent to it: {self.why_lost or why}",
            fix="restart it and the remaining servers, which wait for it; then continue with --resume: "
            f"{START}",
        )

    def hang_up(self) -> None:
        """Stop waiting for the servers' answers to the weights: those that are left will not answer."""
        if self._receiving is not None:
            self._receiving.cancel()


def _joined(info: NCCLTrainerInitInfo, client: _GroupLink, source: Source) -> Any:
    """A sender that has joined a group with all servers.

    Raises:
        RunFailed: If one of them did not join.
    """
    try:
        return WeightTransferTrainerFactory.trainer_init(info, client=client, source=source)
    except DistError as error:
        # The reason may be known already; the group itself only ran into its timeout.
        raise client.failure or RunFailed(
            f"the process group with the vLLM servers could not be formed: {error}",
            fix=f"check that all of them run, then continue with --resume: {START}",
        ) from error


def _sent(sender: Any, device: torch.device) -> None:
    """Send the weights once they are computed.

    vLLM packs them on CUDA streams of its own, which do not wait for other streams. With the optimiser in
    host memory, an update returns while the GPU is still receiving its weights.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    sender.send_weights()


async def _watched(sending: "asyncio.Future[None]", client: _GroupLink, sender: Any) -> None:
    """Wait until weights are sent. NCCL itself would wait for ever for a dead server.

    Raises:
        RunFailed: If a server of the group has failed.
    """
    loop, cut = asyncio.get_running_loop(), False
    while not (await asyncio.wait({sending}, timeout=LOOK))[0]:
        if client.broken:
            if not cut:
                await loop.run_in_executor(None, _abort, sender.model_update_group)
            cut = True
            client.hang_up()
    try:
        sending.result()
    except RuntimeError as error:
        if "NCCL" not in str(error):
            raise
        client.hang_up()
        raise client.lost(str(error)) from error
    if cut:
        raise client.lost()


def _abort(group: Any) -> None:
    """Abort the broadcast that a communicator is stuck in; later ones become no-ops, so the sender ends."""
    group.disabled = True
    with torch.accelerator.device_index(group.device.index):
        group.nccl.ncclCommAbort(group.comm)
