"""Which process this is, and of how many."""

import os
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

COLLECTIVES = timedelta(hours=2)
"""That a process waits for the others where gradients and weights travel, and for the first one, which checks
the data, to come to the start."""
MEETINGS = timedelta(days=2)
"""That it waits where objects are gathered and at barriers: there one draws, writes or judges longer than the
others, by hours. One that has died is found by its watcher, not by a timeout."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """One training process per device; a launcher (deepspeed, torchrun) says which one this is."""

    rank: int
    world: int
    local: int
    meetings: Any = None
    """The process group of `gather` and `wait`; None: torch's default one."""

    def joined(self) -> "Ranks":
        """With a group for objects and barriers, on the CPU and with a patience of its own.

        All processes call it, once the default group is there.
        """
        if self.world == 1:
            return self
        import torch

        return replace(self, meetings=torch.distributed.new_group(backend="gloo", timeout=MEETINGS))

    @classmethod
    def of_this_process(cls) -> "Ranks":
        """What the launcher's variables say; a process started without one is alone."""
        return cls(*(int(os.environ.get(name, default)) for name, default in
                     (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"))))  # fmt: skip

    @property
    def device(self) -> "torch.device":
        """The GPU of this process, or the CPU where there is none."""
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
        """Give one process a value, which it receives."""
        import torch

        torch.distributed.send_object_list([value], target, group=self.meetings)

    def receive(self, source: int) -> Any:
        """What one process sends to this one."""
        import torch

        out: list[Any] = [None]
        torch.distributed.recv_object_list(out, source, group=self.meetings)
        return out[0]

    def wait(self) -> None:
        """Until all processes are here."""
        if self.world > 1:
            import torch

            torch.distributed.barrier(group=self.meetings)
