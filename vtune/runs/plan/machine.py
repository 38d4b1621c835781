"""The GPUs that a plan is for: those that are named, or those of this machine."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from itertools import count
from typing import Literal

from vtune.update import rates
from vtune.update.rates import Device

GB = 1e9
MARGIN = 0.08
"""As a share of a GPU's memory: what the allocator loses to fragmentation. Ours."""
GPUS_PER_HOST = 8
"""Most GPUs in one machine, if not specified. Ours."""
OUTSIDE_GB = {"gpu": 1.5, "cpu": 0.7}
"""Of one process, besides its tensors: driver context, kernels, NCCL; on a CPU the Python packages. Ours."""


@dataclass(frozen=True, slots=True)
class Pictures:
    """The pictures of a question or a trace, which a plan has to make room for."""

    pixels: float | None = None
    """Pixels per picture, on average; None: not measured."""
    each: float = 1.0
    """Pictures per row, on average."""
    most: int = 1
    """Most pictures in a row."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The hardware that a plan is for."""

    gpus: int
    """Number of GPUs, or of processes on a CPU."""
    memory_gb: float
    """Memory of one of them."""
    kind: Literal["gpu", "cpu"]
    device: Device
    said: str
    """Where this information comes from."""
    pictures: Pictures = Pictures()
    """The pictures that the data contain."""
    hosts: int = 1
    """Machines that have these GPUs, the same number each."""

    @property
    def of_a_host(self) -> int:
        """Number of GPUs in each machine."""
        return self.gpus // self.hosts

    @property
    def room_gb(self) -> float:
        """Memory that tensors may fill."""
        return self.memory_gb * (1 - MARGIN) - OUTSIDE_GB[self.kind]


def hosts_of(gpus: int) -> int:
    """Number of machines for these GPUs, if not specified: the fewest with the same number each."""
    return next(hosts for hosts in count(-(-gpus // GPUS_PER_HOST)) if gpus % hosts == 0)


def machine_of(
    gpus: int | None, memory_gb: float | None, *, gpu: str | None = None, hosts: int | None = None
) -> Machine:
    """The machine that was asked for; anything not specified is taken from this machine.

    Args:
        gpus: Number of GPUs over all hosts.
        memory_gb: Memory of one GPU; None: that of a GPU of the given name.
        gpu: Name of the GPU model; None: the one with this memory.
        hosts: Number of machines; None: this one if it has the GPUs, else the fewest possible (`hosts_of`).

    Raises:
        RecipeError: If no GPU is known by that name.
    """
    asked = None if gpu is None else rates.device_called(gpu)
    names = _driver("name")
    number = gpus or max(1, len(names))
    if asked is not None or memory_gb is not None:
        device = asked or rates.device_like(memory_gb or 0)
        said = f"as asked; speeds of {device.name}"
        size = memory_gb or device.memory_gb
        return Machine(number, size, "gpu", device, said, hosts=hosts or hosts_of(number))
    if names:
        here = float(_driver("memory.total")[0].split()[0]) * 2**20 / GB
        known = rates.device_named(names[0], here) or rates.device_like(here)
        said = f"{names[0]}; speeds of {known.name}"
        hosts = hosts or (1 if number <= len(names) else hosts_of(number))
        return Machine(number, here, "gpu", known, said, hosts=hosts)
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GB
    cores = len(os.sched_getaffinity(0))
    said, hosts = f"this machine without a GPU, {cores} cores", hosts or 1
    return Machine(number, total / (number / hosts), "cpu", rates.CORE, said, hosts=hosts)


def _driver(field: str) -> list[str]:
    if shutil.which("nvidia-smi") is None:
        return []
    command = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    return (
        [line.strip() for line in ended.stdout.splitlines() if line.strip()] if not ended.returncode else []
    )
