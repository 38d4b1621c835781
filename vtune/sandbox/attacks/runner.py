"""Runs attacks one after another, each in its own session, and reports how each one ended."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vtune.errors import DataError, ServiceError
from vtune.sandbox.attacks import checks
from vtune.sandbox.attacks.firing_range import Range, Shot
from vtune.sandbox.attacks.placeholders import kinds
from vtune.sandbox.attacks.suite import Attack
from vtune.sandbox.attacks.world import World
from vtune.sandbox.types import Execution, Isolation, Layer, Limits

Outcome = Literal["held", "breach", "allowed leak", "skipped", "error"]
"""`error`: the attack itself is wrong, and was not run."""

GRACE = 0.5
NOTE_CHARS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How one attack ended."""

    attack: Attack
    outcome: Outcome
    breaches: tuple[str, ...] = ()
    status: str = ""
    """Status of the call, as in `Execution`; empty if it was not made."""
    seconds: float = 0.0
    """Duration of the call."""
    note: str = ""
    stopped_by: str = ""
    """The layer that the attack's header names, else how the call ended; empty if neither is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """How a suite went."""

    info: dict[str, Any]
    """Facts about the sandbox, from `Sandbox.info`."""
    results: tuple[Result, ...]
    """In the order of the suite."""


async def run_suite(
    attacks: Sequence[Attack],
    *,
    isolation: Isolation,
    without: frozenset[Layer],
    done: Callable[[Result], None],
) -> Tally:
    """Run attacks against real sandboxes, one for each soft limit, with everything exposed to harm.

    What an attack breaks is repaired before the next one.

    Args:
        attacks: What to run.
        isolation: Tier of the sandbox.
        without: Layers to leave out. Attacks that are not `weak_ok` are then skipped.
        done: Called after each attack.

    Raises:
        DataError: If the path of the temporary folder is too long for a socket in it.
        ServiceError: If the sandbox does not start.
    """
    results: dict[str, Result] = {}
    order = sorted(attacks, key=lambda attack: attack.soft)
    info: dict[str, Any] = {}
    with World() as world:
        for soft, group in itertools.groupby(order, key=lambda attack: attack.soft):
            limits = Limits(seconds=soft, grace=GRACE)
            async with Range(world, limits, isolation, without) as place:
                info = place.sandbox.info()
                for attack in group:
                    result = await _run(place, attack, weakened=bool(without))
                    results[attack.name] = result
                    done(result)
    return Tally(info=info, results=tuple(results[attack.name] for attack in attacks))


async def _run(place: Range, attack: Attack, *, weakened: bool) -> Result:
    """Run one attack and repair what it broke; `weakened`: a layer of the sandbox is left out."""
    if weakened and not attack.weak_ok:
        return Result(attack=attack, outcome="skipped", note="not to be run with a layer left out")
    try:
        kinds(attack.source, attack.path)
    except DataError as error:
        return Result(attack=attack, outcome="error", note=f"{error.what}; {error.fix}")
    await place.ready()
    before = place.look()
    strays: tuple[Path, ...] = ()
    try:
        shot = await place.shoot(attack, before)
        result, strays = _judged(attack, shot, place.sandbox.info()["layers"]), shot.strays
    except (ServiceError, OSError) as error:
        what = f"the sandbox failed: {' '.join(str(error).split())}"
        result = Result(attack=attack, outcome="breach", breaches=(what,))
    if result.outcome == "breach":
        await place.renew(before, strays)
    return result


def _judged(attack: Attack, shot: Shot, layers: Mapping[str, Any]) -> Result:
    """How an attack ended, from what it did and the layers in force."""
    execution = shot.execution
    unparsed = checks.never_ran(execution)
    outcome: Outcome = "held"
    note = ""
    if shot.leaks and not shot.breaches and not layers["namespaces"]:
        outcome, note = "allowed leak", "metadata can be read where there is no mount namespace"
    elif shot.breaches or shot.leaks:
        outcome = "breach"
    elif unparsed:
        note = f"the code never ran: {unparsed}"
    stopper = stopped_by(attack, execution, layers) if outcome == "held" else ""
    if outcome == "held" and not (stopper or note) and execution.error:
        # A mistake in the attack itself looks the same.
        note = f"the code raised {execution.error.splitlines()[-1][:NOTE_CHARS]}"
    return Result(
        attack=attack,
        outcome=outcome,
        breaches=shot.breaches + shot.leaks,
        status=execution.status,
        seconds=shot.seconds,
        note=note,
        stopped_by=stopper,
    )


def stopped_by(attack: Attack, execution: Execution, layers: Mapping[str, Any]) -> str:
    """The layer named in the attack's header, if it is in force; else what the end of the call suggests."""
    return attack.layer if layers.get(attack.layer, bool(attack.layer)) else ended_by(execution)


def ended_by(execution: Execution) -> str:
    """What stopped a call, as far as its end reveals."""
    error = execution.error.lower()
    if execution.status == "timeout" or (execution.status == "limit" and error.startswith("timeouterror")):
        return "soft limit"
    if execution.status == "killed":
        causes = {"wrote": "quota", "left": "quota", "interfered": "protocol", "longer": "hard limit"}
        return next((layer for word, layer in causes.items() if word in error), "end of its process")
    refusals = ("refused", "PermissionError", "Operation not permitted", "Permission denied")
    return "kernel" if any(word in execution.output + execution.error for word in refusals) else ""
