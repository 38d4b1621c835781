"""The time limit and the quotas of a call while it runs."""

import time

from vtune.errors import ServiceError
from vtune.sandbox.process import Look, Process
from vtune.sandbox.turns import Turns
from vtune.sandbox.types import Limits
from vtune.sandbox.workspace import Workspace

WATCH_SECONDS = 0.05
"""Between two looks at what a running call has written."""
WATCH_SHARE = 20.0
"""Times what a look took pass until the next."""


class Stopped(Exception):
    """The call was ended by force; the text says why."""


def watch(process: Process, files: Workspace, limits: Limits, turns: Turns, taken: float) -> Look:
    """Looks at the clock and at the quotas of a call that begins now, or began `taken` seconds ago.

    The files of many calls that run at the same time are looked at in turns of the event loop. The function
    raises `Stopped` if the call takes too long or writes too much, and `ServiceError` if its
    files cannot be looked at. A call whose time is up gets once more as much as its process waited for a
    core, `limits.seconds` at most: that others had it is not its own doing, and its pictures may just be
    looked for in the inputs.
    """
    seconds = limits.seconds
    deadline = time.monotonic() + seconds + limits.grace - taken
    next_quota = time.monotonic() + WATCH_SECONDS
    waited: float | None = None  # before; not asked for in short calls
    extended = False

    async def look() -> float:
        nonlocal next_quota, waited, deadline, extended
        if time.monotonic() >= next_quota:
            waited = process.waited() if waited is None else waited
            await turns.next()
            began = time.monotonic()
            try:
                quota = files.over_quota(process.unlinked_bytes())
            except OSError as error:
                raise ServiceError(f"the sandbox cannot look at its files: {error}") from error
            if quota:
                raise Stopped(f"the code wrote {quota}")
            # A workspace that takes long to look at is looked at less often: others run beside it.
            now = time.monotonic()
            next_quota = now + max(WATCH_SECONDS, WATCH_SHARE * (now - began))
        if time.monotonic() >= deadline and not extended:
            extended = True
            waited = process.waited() if waited is None else waited
            deadline += min(process.waited() - waited, seconds)
        left = deadline - time.monotonic()
        if left <= 0:
            raise Stopped(f"TimeoutError: the code ran longer than {seconds:g} s and was not to be stopped")
        return min(left, max(0.0, next_quota - time.monotonic()))

    return look
