"""Which process this is, and of how many."""

import os
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import torch

T = TypeVar("T")

COLLECTIVES = timedelta(hours=2)
"""How long a process waits for the others in collectives on gradients and weights, and at the start for the
first one, which checks the data."""
MEETINGS = timedelta(days=2)
"""How long it waits where objects are gathered and at barriers: there one generates, writes or judges for
hours longer than the others. One that has died is found by its watcher, not by a timeout."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """One training process per device; a launcher (deepspeed, torchrun) sets which one this is."""

    rank: int
    world: int
    local: int
    meetings: Any = None
    """The process group of `gather` and `wait`; None: torch's default one."""

    def joined(self) -> "Ranks":
        """With a group for objects and barriers, on the CPU and with its own timeout.

        All processes call it, once the default group is there.
        """
        if self.world == 1:
            return self
        import torch

        return replace(self, meetings=torch.distributed.new_group(backend="gloo", timeout=MEETINGS))

    @classmethod
    def of_this_process(cls) -> "Ranks":
        """From the launcher's variables; a process started without a launcher is alone."""
        return cls(*(int(os.environ.get(name, default)) for name, default in
                     (("RANK", "0"), ("WORLD_SIZE", "1"), ("LOCAL_RANK", "0"))))  # fmt: skip

    @property
    def device(self) -> "torch.device":
        """The GPU of this process, or the CPU if there is none."""
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
        """Send a value to one process, which receives it."""
        import torch

        torch.distributed.send_object_list([value], target, group=self.meetings)

    def receive(self, source: int) -> Any:
        """Receive what one process sends to this one."""
        import torch

        out: list[Any] = [None]
        torch.distributed.recv_object_list(out, source, group=self.meetings)
        return out[0]

    def wait(self) -> None:
        """Wait until all processes are here."""
        if self.world > 1:
            import torch

            torch.distributed.barrier(group=self.meetings)
