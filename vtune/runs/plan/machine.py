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
"""Of a GPU's memory: what the allocator loses between blocks. Ours."""
GPUS_PER_HOST = 8
"""GPUs that one machine has, at most, where nobody says. Ours."""
OUTSIDE_GB = {"gpu": 1.5, "cpu": 0.7}
"""Of one process beside its tensors: driver context, kernels, NCCL; on a CPU the Python packages. Ours."""


@dataclass(frozen=True, slots=True)
class Pictures:
    """The pictures of a question or a trace, which a plan has to find room for."""

    pixels: float | None = None
    """Of one, on average; None: nothing was measured."""
    each: float = 1.0
    """Of one row, on average."""
    most: int = 1
    """Of one row, at most."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What a plan is for."""

    gpus: int
    """Or processes, on a CPU."""
    memory_gb: float
    """Of one."""
    kind: Literal["gpu", "cpu"]
    device: Device
    said: str
    """Where this was found."""
    pictures: Pictures = Pictures()
    """What the data will bring to it."""
    hosts: int = 1
    """Machines that have these GPUs, the same number each."""

    @property
    def of_a_host(self) -> int:
        """GPUs of each machine."""
        return self.gpus // self.hosts

    @property
    def room_gb(self) -> float:
        """What tensors may fill."""
        return self.memory_gb * (1 - MARGIN) - OUTSIDE_GB[self.kind]


def hosts_of(gpus: int) -> int:
    """Machines that GPUs take, where nobody says: as few as have the same number each."""
    return next(hosts for hosts in count(-(-gpus // GPUS_PER_HOST)) if gpus % hosts == 0)


def machine_of(
    gpus: int | None, memory_gb: float | None, *, gpu: str | None = None, hosts: int | None = None
) -> Machine:
    """The machine that was asked for; what was not asked is that of this one.

    Args:
        gpus: Of all hosts together.
        memory_gb: Of one GPU; None: what GPUs of the asked name have.
        gpu: Name of the kind of GPU; None: the one that has the memory.
        hosts: That have them; None: this one where it does, else as few as `hosts_of` says.

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
