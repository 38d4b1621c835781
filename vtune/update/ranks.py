"""Which process this is, and of how many."""

import os
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

COLLECTIVES = timedelta(hours=2)
"""Timeout of collectives on gradients and weights, and of waiting at the start for the first process, which
checks the data."""
MEETINGS = timedelta(days=2)
"""Timeout where objects are gathered and at barriers: there one process may generate, write or judge for
hours longer than the others. A process that has died is detected by its watcher, not by a timeout."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """One training process per device; a launcher (deepspeed, torchrun) sets which one this is."""

    rank: int
    world: int
    local: int
    meetings: Any = None
    """The process group of `gather` and `wait`; None: torch's default one."""

    def joined(self) -> "Ranks":
        """With a process group for objects and barriers, on the CPU and with its own timeout.

        All processes call it, once the default group exists.
        """
        if self.world == 1:
            return self
        import torch

        return replace(self, meetings=torch.distributed.new_group(backend="gloo", timeout=MEETINGS))

    @classmethod
    def of_this_process(cls) -> "Ranks":
        """From the launcher's variables; a process started without a launcher is the only one."""
        return cls(*(int(os.environ.get(name, default)) for name, default in
                     (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"))))  # fmt: skip

    @property
    def device(self) -> "torch.device":
        """This process's GPU, or the CPU if there is none."""
        import torch

        return torch.device("cuda", self.local) if torch.cuda.is_available() else torch.device("cpu")

    @property
    def first(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.rank == 0

    def gather(self, value: T) -> list[T]:
        """The value of every process, in order of rank, on every process."""
        if self.world == 1:
            return [value]
        import torch

        out: list[Any] = [None] * self.world
        torch.distributed.all_gather_object(out, value, group=self.meetings)
        return out

    def send(self, value: object, target: int) -> None:
        """Send a value to one process, which must call `receive`."""
        import torch

        torch.distributed.send_object_list([value], target, group=self.meetings)

    def receive(self, source: int) -> Any:
        """Receive a value that another process sends to this one."""
        import torch

        out: list[Any] = [None]
        torch.distributed.recv_object_list(out, source, group=self.meetings)
        return out[0]

    def wait(self) -> None:
        """Wait until all processes have reached this point."""
        if self.world > 1:
            import torch

            torch.distributed.barrier(group=self.meetings)
