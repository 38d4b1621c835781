"""Connects the processes that train together, and sets up DeepSpeed in each."""

import logging
import os
import warnings
from typing import Any

import torch
from packaging.version import Version

from vtune.errors import RunFailed
from vtune.models.import_stubs import skip_muon, uncollected, without_mlflow
from vtune.models.network import free_port, name_interface
from vtune.update.ranks import COLLECTIVES, Ranks

DEEPSPEED = "0.19.8"
"""The first version that trains correctly. Before 0.19.4 `managed_gradient_accumulation` is silently ignored,
which changes updates of several micro-batches; before 0.19.8 a NaN gradient gets the norm of a small one, and
is applied to the weights."""


def start(ranks: Ranks) -> Ranks:
    """Join the process group; a process without a launcher forms its own.

    Returns:
        `ranks` with a process group for objects and barriers.

    Raises:
        RunFailed: If the installed DeepSpeed is too old.
    """
    if ranks.device.type == "cpu":
        os.environ.setdefault("DS_ACCELERATOR", "cpu")  # otherwise it warns that it found nothing better
    skip_muon()
    with uncollected(), without_mlflow():
        import deepspeed

    _check_learns(deepspeed.__version__)
    # These warnings address DeepSpeed's developers: it calls torch functions by older names.
    warnings.filterwarnings("ignore", r"`torch\.distributed\.\w+` is deprecated", FutureWarning)
    # The current device is this rank's: it is set below.
    warnings.filterwarnings("ignore", r"barrier\(\): using the device under current context", UserWarning)
    if torch.distributed.is_initialized():
        return ranks.joined()
    if ranks.device.type == "cuda":
        torch.cuda.set_device(ranks.device)
    else:
        # Makes equal runs equal bit by bit. On a GPU it would cost speed.
        torch.use_deterministic_algorithms(True)
        # Otherwise it would fill every new tensor, including DeepSpeed's buffers of several gigabytes.
        settings: Any = torch.utils.deterministic
        settings.fill_uninitialized_memory = False
    # The shared-memory op would be compiled at first use (a minute, and needs a compiler); gloo works
    # without.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    if "MASTER_ADDR" not in os.environ:
        os.environ |= {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            "RANK": "0",
            "LOCAL_RANK": "0",
            "WORLD_SIZE": "1",
        }
    name_interface(os.environ["MASTER_ADDR"])
    backend = "nccl" if ranks.device.type == "cuda" else "gloo"
    deepspeed.init_distributed(
        dist_backend=backend, auto_mpi_discovery=False, verbose=False, timeout=COLLECTIVES
    )
    # DeepSpeed would create the group for starting weights and gradients with torch's default timeout.
    deepspeed.utils.groups._WORLD_GROUP = torch.distributed.new_group(timeout=COLLECTIVES)
    return ranks.joined()


def _check_learns(version: str) -> None:
    """Reject a DeepSpeed version that would silently train incorrectly."""
    if Version(version) < Version(DEEPSPEED):
        raise RunFailed(
            f"deepspeed {version} sums up micro-batches wrongly, or takes a gradient that is not a number",
            fix=f"pip install 'deepspeed>={DEEPSPEED},<0.20'",
        )
