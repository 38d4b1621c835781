"""Sending weights with vLLM's NCCL sender and a fake NCCL: a broadcast ends when all workers have joined."""

import asyncio
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import httpx2
import pytest
import torch
import vllm.distributed.weight_transfer.nccl_engine as engine
from torch.distributed import DistStoreError

from vtune.errors import RunFailed
from vtune.rollout import vllm_nccl, vllm_senders
from vtune.rollout.fleet import Fleet, Server

WORKERS = 2


class Group:
    """A communicator and its library."""

    device = torch.device("cpu")
    comm = "comm"
    disabled = False

    def __init__(self) -> None:
        self.nccl = self
        self.joined = threading.Semaphore(0)
        self.aborted: list[str] = []

    def ncclCommAbort(self, comm: str) -> None:  # noqa: N802 - its name
        self.aborted.append(comm)
        for _ in range(WORKERS):
            self.joined.release()

    def destroy(self) -> None:
        """Does nothing: it ends with the sender."""


class Servers:
    """Two servers, the second of which fails on a given path."""

    def __init__(self, fails: str, group: Group, *, status: int = 500) -> None:
        self.fails = fails
        self.status = status
        self.group = group
        self.told: list[tuple[str, str]] = []

    async def __call__(self, request: httpx2.Request) -> httpx2.Response:
        path, host = request.url.path, request.url.host
        self.told.append((host, path))
        if path == "/weight_info":
            return httpx2.Response(200, json={"weight_version": "default"})
        if host == "b" and path == self.fails:
            return httpx2.Response(self.status, text="out of order")
        if path == "/get_world_size":
            return httpx2.Response(200, json={"world_size": 1})
        if path == "/reset_prefix_cache":
            return httpx2.Response(200, json={"success": True})
        if path == "/update_weights":
            self.group.joined.release()
            if self.fails == path:
                await asyncio.Event().wait()  # its worker waits for the other server's
        return httpx2.Response(200, json={})


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Group:
    found = Group()

    def broadcast(iterator: Iterable[Any], group: Group, **how: Any) -> None:
        weights = iter(iterator)
        next(weights)
        for _ in range(WORKERS):
            group.joined.acquire()
        for _ in weights:
            pass

    monkeypatch.setattr(engine, "open_trainer_endpoint", lambda info: found)
    monkeypatch.setattr(engine, "packed_nccl_broadcast_producer", broadcast)
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 0)
    monkeypatch.setattr(
        vllm_senders, "plain_shapes", lambda policy: [(name, torch.float32, (2,)) for name in "ab"]
    )
    monkeypatch.setattr(vllm_nccl, "trainer_address", lambda urls: "127.0.0.1")
    monkeypatch.setattr(vllm_nccl, "LOOK", 0.02)
    return found


def handed(servers: Servers, passed: list[str], device: torch.device = Group.device) -> None:
    """Hand over two weights; record those that were read."""

    def weights() -> Iterator[tuple[str, torch.Tensor]]:
        for name in ("a", "b"):
            passed.append(name)
            yield name, torch.ones(2)

    async def run() -> None:
        send = vllm_nccl.nccl_sender(None, device, first=True)  # type: ignore[arg-type]
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(servers)) as http:
            fleet = Fleet(http, [Server("http://a"), Server("http://b")])
            async with asyncio.timeout(20):
                await send(weights, fleet, "vtune-0")

    asyncio.run(run())


def test_weights_are_broadcast_to_all_servers(group: Group) -> None:
    passed: list[str] = []
    servers = Servers("", group)
    handed(servers, passed)
    assert passed == ["a", "b"]
    assert [told for told in servers.told if told[1] == "/resume"] == [("a", "/resume"), ("b", "/resume")]
    assert group.aborted == []


def test_weights_are_computed_before_they_are_packed(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM's streams would not wait: with the optimiser in host memory, weights may still be on their way."""
    passed: list[str] = []
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: passed.append(f"computed on {device}"))
    handed(Servers("", group), passed, torch.device("cuda", 1))
    assert passed == ["computed on cuda:1", "a", "b"]


@pytest.mark.parametrize(
    ("status", "said", "fix"),
    [
        (500, "b: HTTP 500: out of order", "restart it and the remaining servers"),
        (422, "b/update_weights refuses: HTTP 422", "start it with"),
    ],
)
@pytest.mark.parametrize("early", [False, True], ids=["", "before a weight is gathered"])
def test_a_server_that_fails_during_a_broadcast_ends_it(
    group: Group, status: int, said: str, fix: str, early: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NCCL would wait for its worker for ever, and so would the other server's worker."""
    passed: list[str] = []
    submit = ThreadPoolExecutor.submit

    def at_once(self: ThreadPoolExecutor, *given: Any) -> Future[Any]:
        asked = submit(self, *given)
        if early and "update_weights" in str(given[0]):
            wait([asked], timeout=0.3)
        return asked

    monkeypatch.setattr(ThreadPoolExecutor, "submit", at_once)
    with pytest.raises(RunFailed, match=said) as caught:
        handed(Servers("/update_weights", group, status=status), passed)
    assert fix in str(caught.value.fix)
    # All weights are read, as other processes gather in step; but later ones are not broadcast.
    assert passed == ["a", "b"]
    assert group.aborted == ["comm"]
    assert group.disabled


def test_nothing_is_broadcast_if_a_server_refuses_weights(group: Group) -> None:
    passed: list[str] = []
    servers = Servers("/start_weight_update", group)
    with pytest.raises(RunFailed, match=r"b: HTTP 500: out of order"):
        handed(servers, passed)
    assert passed == []
    assert "/update_weights" not in {path for _, path in servers.told}
    assert group.aborted == []


def test_a_server_that_fails_after_all_weights_is_left_out(group: Group) -> None:
    servers = Servers("/finish_weight_update", group)
    handed(servers, [])
    assert group.aborted == []
    assert [told for told in servers.told if told[1] == "/resume"] == [("a", "/resume")]


@pytest.mark.parametrize("known", [True, False])
def test_a_failed_group_setup_ends_the_run_with_the_reason(
    group: Group, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    def alone(info: Any) -> None:
        raise DistStoreError("timed out after 300 s, 2/3 clients joined")

    monkeypatch.setattr(engine, "open_trainer_endpoint", alone)
    with pytest.raises(RunFailed, match="out of order" if known else "2/3 clients joined"):
        handed(Servers("/init_weight_transfer_engine" if known else "", group), [])


@pytest.mark.parametrize(
    ("said", "kind"), [("NCCL error: remote process exited", RunFailed), ("a bug", RuntimeError)]
)
def test_an_nccl_error_is_a_run_failure(
    group: Group, monkeypatch: pytest.MonkeyPatch, said: str, kind: type[Exception]
) -> None:
    def fails(*given: Any, **how: Any) -> None:
        raise RuntimeError(said)

    monkeypatch.setattr(engine, "packed_nccl_broadcast_producer", fails)
    with pytest.raises(kind, match=said):
        handed(Servers("", group), [])
