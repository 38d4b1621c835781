"""How a process ends that has a process group."""

import atexit
import os
import sys


class Ending:
    """Ends a process with its code where threads of collectives live on.

    Gloo's threads may hold tensors of the last collective for a moment longer than the one that waited for
    it. If the interpreter is being torn down by then, freeing one aborts the process
    (pytorch/pytorch#190489, "terminate called without an active exception"): one that had done all its work
    would end as if it had crashed. Destroying the group does not help while anything refers to it. So such a
    process ends right before the teardown: other threads have ended by then, and what was registered with
    `atexit` after this has run.
    """

    def __init__(self) -> None:
        self.code: int | None = None
        """What the process ends with; None: as the interpreter says."""
        atexit.register(self._now)

    def _now(self) -> None:
        if self.code is None or not _grouped():
            return
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(self.code)


def _grouped() -> bool:
    """Whether this process has joined a process group."""
    distributed = sys.modules.get("torch.distributed.distributed_c10d")
    return distributed is not None and bool(distributed.is_initialized())
