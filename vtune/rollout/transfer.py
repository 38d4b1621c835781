"""Weight transfer to vLLM through its transfer API: pause, start, send, finish, resume."""

import asyncio
import ipaddress
import socket
import uuid
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

import torch

from vtune.errors import RunFailed
from vtune.files.writing import open_to_others
from vtune.models.network import address_towards
from vtune.rollout.engine import Weights

BUCKET = 1 << 30
"""Bytes per file, and in the memory of either side at a time."""

HANDLES = "vtune_handles"
"""Name of our vLLM backend for handles to memory on the same GPU."""
FILES = "vtune_files"
"""Name of our vLLM backend for files that both sides can read. For CPUs; vLLM's own backends need GPUs."""


class Link(Protocol):
    """The transfer API of one vLLM, or of several treated as one."""

    async def pause(self) -> None:
        """Stop generating, and clear every cached key and feature: they come from the old weights."""
        ...

    async def init_weight_transfer_engine(self, info: dict[str, Any]) -> None:
        """Agree on how weights will be sent."""
        ...

    async def start_weight_update(self) -> None:
        """Begin a transfer."""
        ...

    async def update_weights(self, info: dict[str, Any]) -> None:
        """Some weights are ready, as described in the backend's `info`."""
        ...

    async def finish_weight_update(self, label: str) -> None:
        """All weights have arrived; they are called `label`."""
        ...

    async def resume(self) -> None:
        """Generate again."""
        ...


class BlockingLink:
    """A blocking wrapper of a link, for the sending side of vLLM's own backends."""

    def __init__(self, link: Link, loop: asyncio.AbstractEventLoop, label: str) -> None:
        self._link = link
        self._loop = loop
        self._label = label

    def _wait(self, call: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(call, self._loop).result()

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Agree on how weights will be sent."""
        self._wait(self._link.init_weight_transfer_engine(init_info))

    def start_weight_update(self) -> None:
        """Begin a transfer."""
        self._wait(self._link.start_weight_update())

    def update_weights(self, update_info: Any) -> None:
        """Some weights are ready."""
        self._wait(self._link.update_weights(update_info))

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """All weights have arrived."""
        self._wait(self._link.finish_weight_update(weight_version or self._label))


async def send_files(weights: Weights, link: Link, folder: Path, label: str) -> None:
    """Transfer weights as files in `folder`, which both sides must see; the files are removed afterwards."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    await link.pause()
    await link.start_weight_update()
    for bucket in buckets(weights(), BUCKET):
        path = folder / f"{uuid.uuid4().hex}.safetensors"
        try:
            save_file(bucket, path)
            open_to_others(path)
            await link.update_weights({"path": str(path.resolve())})
        finally:
            path.unlink(missing_ok=True)
    await link.finish_weight_update(label)
    await link.resume()


def buckets(weights: Iterator[tuple[str, torch.Tensor]], size: int) -> Iterator[dict[str, torch.Tensor]]:
    """Groups weights, in order, into buckets of at most `size` bytes; a larger tensor gets its own bucket."""
    bucket: dict[str, torch.Tensor] = {}
    held = 0
    for name, tensor in weights:
        if bucket and held + tensor.nbytes > size:
            yield bucket
            bucket, held = {}, 0
        # Copied even if it is on a CPU: the tensor is valid only until the next one is requested.
        bucket[name] = tensor.detach().to("cpu", copy=True).contiguous()
        held += tensor.nbytes
    if bucket:
        yield bucket


def trainer_address(urls: Sequence[str]) -> str:
    """The address at which servers, given by URL, can reach this machine.

    If some of them are on this machine, its external address is used for them too.

    Raises:
        RunFailed: If there is no route to one of them.
    """
    found = [_address_towards(url) for url in urls]
    return next((one for one in found if not ipaddress.ip_address(one).is_loopback), found[0])


def _address_towards(url: str) -> str:
    try:
        # vLLM listens on IPv4 only, and `localhost` may resolve to an IPv6 address first.
        return address_towards(urlsplit(url).hostname or url, family=socket.AF_INET)
    except OSError as error:
        raise RunFailed(
            f"there is no route to the vLLM server {url}: {error.strerror or error}",
            fix="fix rollout.servers, then continue with --resume",
        ) from error
