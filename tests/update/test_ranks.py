"""Late processes: objects and barriers use a group with a longer timeout."""

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import ROOT
from tests.update.pair import both_end_well
from tests.update.two_processes import RUNS
from vtune.errors import RunFailed
from vtune.models.network import address_towards, name_interface
from vtune.update import starting
from vtune.update.ranks import COLLECTIVES, MEETINGS, Ranks


class Late:
    """Fake process groups whose last member arrives `by` late."""

    def __init__(self) -> None:
        self.patience: dict[Any, timedelta] = {}
        self.by = timedelta()

    def init(self, *, timeout: timedelta = timedelta(minutes=10), **_: Any) -> None:
        self.patience[None] = timeout

    def new_group(self, *, backend: str = "default", timeout: timedelta = timedelta(minutes=10)) -> str:
        self.patience[backend] = timeout
        return backend

    def all_meet(self, *_: Any, group: Any = None) -> None:
        if self.patience[group] < self.by:
            raise RuntimeError(f"timed out after {self.patience[group]}")


def test_a_rank_that_is_12_minutes_late_does_not_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    import deepspeed

    late = Late()
    monkeypatch.setattr(deepspeed.utils.groups, "_WORLD_GROUP", None)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: False)
    monkeypatch.setattr(deepspeed, "init_distributed", late.init)
    monkeypatch.setattr(torch.distributed, "new_group", late.new_group)
    monkeypatch.setattr(torch.distributed, "all_gather_object", late.all_meet)
    monkeypatch.setattr(torch.distributed, "barrier", late.all_meet)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    ranks = starting.start(Ranks(rank=1, world=8, local=1))
    late.by = timedelta(minutes=12)
    late.all_meet()
    late.all_meet(group=deepspeed.utils.groups._WORLD_GROUP)
    # A process may generate, write or judge for hours longer than the others.
    late.by = COLLECTIVES + timedelta(hours=1)
    ranks.wait()
    ranks.gather("what it drew")
    assert late.patience == {None: COLLECTIVES, "default": COLLECTIVES, "gloo": MEETINGS}


@pytest.mark.parametrize("version", ["0.19.0", "0.19.7", "0.19.7+abc"])
def test_an_incompatible_deepspeed_version_is_refused(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = f"deepspeed>={starting.DEEPSPEED},<0.20"
    assert f'"{asked}"' in (ROOT / "pyproject.toml").read_text()
    monkeypatch.setattr("deepspeed.__version__", version)
    with pytest.raises(RunFailed) as refused:
        starting.start(Ranks.of_this_process())
    assert f"deepspeed {version} sums up micro-batches wrongly" in str(refused.value)
    assert asked in str(refused.value)


MEETS = """
import os, sys, time
from datetime import timedelta
import torch
from vtune.update.ranks import Ranks

rank = int(os.environ["RANK"])
# The two may start far apart on a busy machine: only what comes after they have met is short of patience.
store = torch.distributed.TCPStore(
    os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), 2, is_master=not rank
)
torch.distributed.init_process_group(
    "gloo", store=store, rank=rank, world_size=2, timeout=timedelta(seconds=60)
)
ranks = Ranks.of_this_process().joined()
torch.distributed.distributed_c10d._set_pg_timeout(timedelta(seconds=2))
if ranks.rank:
    time.sleep(5)
ranks.wait()
assert ranks.gather(ranks.rank * 10) == [0, 10]
"""


@pytest.mark.slow
def test_gathering_does_not_use_the_default_groups_timeout(tmp_path: Path) -> None:
    """Two gloo processes; one arrives after the other's default timeout."""
    both_end_well(MEETS, tmp_path, imports="import torch, vtune.update.ranks")


@pytest.mark.train
def test_weights_and_gradients_have_the_default_groups_timeout(pair: Path) -> None:
    """They use a group created by DeepSpeed; torch's default timeout is 10 minutes with NCCL."""
    seconds = torch.load(pair / "learnt/done")["patience"]
    assert seconds == dict.fromkeys(RUNS, COLLECTIVES.total_seconds())


def test_a_single_process_waits_for_nothing() -> None:
    alone = Ranks(rank=0, world=1, local=0)
    assert alone.joined() is alone
    began = time.monotonic()
    alone.wait()
    assert alone.gather(1) == [1]
    assert time.monotonic() - began < 10


def test_gloo_uses_the_interface_of_the_route_to_the_first_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert address_towards("127.0.0.1") == "127.0.0.1"
    monkeypatch.delenv("GLOO_SOCKET_IFNAME", raising=False)
    name_interface("127.0.0.1")
    assert os.environ.pop("GLOO_SOCKET_IFNAME") == "lo"
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth7")
    name_interface("127.0.0.1")
    assert os.environ["GLOO_SOCKET_IFNAME"] == "eth7"
