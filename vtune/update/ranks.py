"""Which process this is, of how many."""

import os
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ranks:
    """One training process per device; a launcher (deepspeed, torchrun) says which one this is."""

    rank: int
    world: int
    local: int

    @classmethod
    def of_this_process(cls) -> "Ranks":
        """What the launcher's variables say; a process started without one is alone."""
        return cls(*(int(os.environ.get(name, default)) for name, default in
                     (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"))))  # fmt: skip

    @property
    def device(self) -> torch.device:
        """The GPU of this process, or the CPU where there is none."""
        return torch.device("cuda", self.local) if torch.cuda.is_available() else torch.device("cpu")

    @property
    def first(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.rank == 0

    def gather(self, value: T) -> list[T]:
        """The value of every process, in order of rank, on every process."""
        if self.world == 1:
            return [value]
        out: list[Any] = [None] * self.world
        torch.distributed.all_gather_object(out, value)
        return out

    def wait(self) -> None:
        """Until all processes are here."""
        if self.world > 1:
            torch.distributed.barrier()
