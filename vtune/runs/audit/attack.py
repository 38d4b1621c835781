"""`vtune sandbox attack`: a suite of hostile snippets against this machine's sandbox."""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from vtune.report.progress import Steps
from vtune.sandbox.attacks.runner import Result, Tally, run_suite
from vtune.sandbox.attacks.suite import SHIPPED, read_suite
from vtune.sandbox.types import Isolation, Layer
from vtune.signals import orders_to_stop


def run_attack(
    folder: Path | None, only: Sequence[str], *, isolation: Isolation, without: Sequence[Layer]
) -> dict[str, Any]:
    """Run a suite of attacks and report what held. SIGTERM ends it like Ctrl-C, with everything cleaned up.

    Args:
        folder: Folder of the suite; None: the built-in one.
        only: Names of attacks to run; all if empty.
        isolation: Tier of the sandbox.
        without: Layers to leave out: a negative control, in which attacks are expected to succeed.

    Returns:
        `tier`, `layers` and `notes` from `Sandbox.info`, `without`, `attacks`, one entry each (`name`,
        `must_not`, `check`, `outcome`, `held`, `breaches`, `status`, `seconds`, `note`, `stopped_by`), and
        the counts `held`, `breached`, `allowed` (known leaks, which are not breaches), `skipped` and `errors`
        (attacks that could not be run).

    Raises:
        DataError: If the suite cannot be run as it is.
        ServiceError: If the sandbox does not start.
    """
    attacks = read_suite(folder or SHIPPED, only)
    with Steps("attacks", len(attacks)) as steps:
        tally = _run(
            run_suite(
                attacks,
                isolation=isolation,
                without=frozenset(without),
                done=lambda result: steps.advance(),
            )
        )
    counts = Counter(result.outcome for result in tally.results)
    return {
        "tier": tally.info["tier"],
        "layers": tally.info["layers"],
        "notes": list(tally.info["notes"]),
        "without": sorted(without),
        "attacks": [_row(result) for result in tally.results],
        "held": counts["held"],
        "breached": counts["breach"],
        "allowed": counts["allowed leak"],
        "skipped": counts["skipped"],
        "errors": counts["error"],
    }


def _run(suite: Coroutine[Any, Any, Tally]) -> Tally:
    """Like `asyncio.run`, with SIGTERM and SIGHUP handled like Ctrl-C.

    Handled by the loop and not through SIGINT, which background commands of a shell ignore.
    """

    async def until_stopped() -> Tally:
        ours = asyncio.ensure_future(suite)
        for number in orders_to_stop():
            asyncio.get_running_loop().add_signal_handler(number, ours.cancel)
        return await ours

    try:
        return asyncio.run(until_stopped())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def _row(result: Result) -> dict[str, Any]:
    return {
        "name": result.attack.name,
        "must_not": result.attack.must_not,
        "check": result.attack.check,
        "outcome": result.outcome,
        "held": result.outcome == "held",
        "breaches": list(result.breaches),
        "status": result.status,
        "seconds": round(result.seconds, 3),
        "note": result.note,
        "stopped_by": result.stopped_by,
    }
