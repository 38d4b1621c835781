"""The time limit and the quotas of a call while it runs."""

import time

from vtune.errors import ServiceError
from vtune.sandbox.process import Look, Process
from vtune.sandbox.turns import Turns
from vtune.sandbox.types import Limits
from vtune.sandbox.workspace import Workspace

WATCH_SECONDS = 0.05
"""Between two checks of what a running call has written."""
WATCH_SHARE = 20.0
"""The pause between checks is this many times the duration of a check."""


class Stopped(Exception):
    """The call was ended by force; the text says why."""


def watch(process: Process, files: Workspace, limits: Limits, turns: Turns, taken: float) -> Look:
    """Checks the time and the quotas of a call that starts now, or started `taken` seconds ago.

    The files of concurrent calls are checked in turns of the event loop. The returned function raises
    `Stopped` if the call takes too long or writes too much, and `ServiceError` if its files cannot be
    checked. When a call's time is up, it gets an extension once, as long as its process waited for a core,
    but at most `limits.seconds`: that is not its fault, and its pictures may just be being located in the
    inputs.
    """
    seconds = limits.seconds
    deadline = time.monotonic() + seconds + limits.grace - taken
    next_quota = time.monotonic() + WATCH_SECONDS
    waited: float | None = None  # at the start; not measured for short calls
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
            # A workspace that takes long to check is checked less often, since other sessions run too.
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
