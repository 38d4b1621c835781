"""Random programs, and how they evolve: mutation and crossover."""

import random
from collections.abc import Callable, Mapping, Sequence

from vtune.sandbox.attacks.programs.genome import NUMBERS, Program, Shot, Step
from vtune.sandbox.attacks.programs.honest import HONEST
from vtune.sandbox.attacks.programs.hostile import HOSTILE
from vtune.sandbox.attacks.programs.savers import HONEST_SAVERS, SAVERS
from vtune.sandbox.attacks.programs.sources import BLIND, KNOWING

MOST_SHOTS, MOST_CALLS, MOST_STEPS = 5, 3, 7
"""Per call, per program, per shot; a sandbox returns five pictures per call."""
OPERATIONS = HONEST | HOSTILE


def _step(rng: random.Random, among: Mapping[str, object]) -> Step:
    return Step(rng.choice(list(among)), tuple(round(rng.random(), 4) for _ in range(NUMBERS)))


def random_program(rng: random.Random, *, blind: bool, honest: float = 0.4) -> Program:
    """A program of random parts.

    Args:
        rng: Random generator.
        blind: Whether it knows nothing about the target, so that one program serves all questions.
        honest: Share of programs in which no part removes content.
    """
    pure = rng.random() < honest
    sources = BLIND if blind else KNOWING
    operations, savers = (HONEST, HONEST_SAVERS) if pure else (OPERATIONS, SAVERS)
    calls = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        shots = []
        for _ in range(rng.choice((1, 1, 1, 2, 5))):
            steps = [_step(rng, operations) for _ in range(rng.choice((0, 1, 1, 2, 3, 4)))]
            if not pure and rng.random() < 0.5:
                steps.insert(rng.randint(0, len(steps)), _step(rng, HOSTILE))
            saver = _step(rng, savers if rng.random() < 0.3 else HONEST_SAVERS)
            shots.append(Shot(_step(rng, sources), tuple(steps), saver))
        calls.append(tuple(shots))
    return Program(tuple(calls))


def mutated(program: Program, rng: random.Random, *, blind: bool) -> Program:
    """The program with one to three small changes."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        program = rng.choice(_CHANGES)(program, rng, blind)
    return program


def crossed(a: Program, b: Program, rng: random.Random) -> Program:
    """Shots of both parents, and sometimes a shot with the head of one and the tail of the other."""
    one, other = rng.choice(a.shots), rng.choice(b.shots)
    cut, join = rng.randint(0, len(one.steps)), rng.randint(0, len(other.steps))
    child = Shot(one.source, (*one.steps[:cut], *other.steps[join:])[:MOST_STEPS], other.saver)
    if rng.random() < 0.5:
        return _replaced(a, rng, lambda _: child)
    return Program((*a.calls[: rng.randint(0, len(a.calls))], rng.choice(b.calls))[:MOST_CALLS])


def _replaced(program: Program, rng: random.Random, change: Callable[[Shot], Shot]) -> Program:
    """The program with one of its shots changed."""
    k = rng.randrange(len(program.calls))
    call = program.calls[k]
    n = rng.randrange(len(call))
    new = (*call[:n], change(call[n]), *call[n + 1 :])
    return Program((*program.calls[:k], new, *program.calls[k + 1 :]))


def _inserted(program: Program, rng: random.Random, blind: bool) -> Program:
    def change(shot: Shot) -> Shot:
        at = rng.randint(0, len(shot.steps))
        steps = (*shot.steps[:at], _step(rng, OPERATIONS), *shot.steps[at:])
        return Shot(shot.source, steps[:MOST_STEPS], shot.saver)

    return _replaced(program, rng, change)


def _deleted(program: Program, rng: random.Random, blind: bool) -> Program:
    def change(shot: Shot) -> Shot:
        if not shot.steps:
            return shot
        at = rng.randrange(len(shot.steps))
        return Shot(shot.source, (*shot.steps[:at], *shot.steps[at + 1 :]), shot.saver)

    return _replaced(program, rng, change)


def _other_source(program: Program, rng: random.Random, blind: bool) -> Program:
    source = _step(rng, BLIND if blind else KNOWING)
    return _replaced(program, rng, lambda shot: Shot(source, shot.steps, shot.saver))


def _other_saver(program: Program, rng: random.Random, blind: bool) -> Program:
    saver = _step(rng, SAVERS)
    return _replaced(program, rng, lambda shot: Shot(shot.source, shot.steps, saver))


def _nudged(program: Program, rng: random.Random, blind: bool) -> Program:
    def near(step: Step) -> Step:
        numbers = (min(1.0, max(0.0, round(n + rng.gauss(0, 0.15), 4))) for n in step.numbers)
        return Step(step.name, tuple(numbers))

    def change(shot: Shot) -> Shot:
        steps = [shot.source, *shot.steps, shot.saver]
        at = rng.randrange(len(steps))
        steps[at] = near(steps[at])
        return Shot(steps[0], tuple(steps[1:-1]), steps[-1])

    return _replaced(program, rng, change)


def _doubled(program: Program, rng: random.Random, blind: bool) -> Program:
    """Duplicate one shot, from another place."""
    k = rng.randrange(len(program.calls))
    call = program.calls[k]
    shot = rng.choice(call)
    other = Step(shot.source.name, _step(rng, {shot.source.name: None}).numbers)
    new = (*call, Shot(other, shot.steps, shot.saver))[:MOST_SHOTS]
    return Program((*program.calls[:k], new, *program.calls[k + 1 :]))


def _dropped(program: Program, rng: random.Random, blind: bool) -> Program:
    """Drop one shot, or one call."""
    k = rng.randrange(len(program.calls))
    call = program.calls[k]
    if len(call) > 1:
        n = rng.randrange(len(call))
        new = (*call[:n], *call[n + 1 :])
        return Program((*program.calls[:k], new, *program.calls[k + 1 :]))
    rest: Sequence[tuple[Shot, ...]] = (*program.calls[:k], *program.calls[k + 1 :])
    return Program(tuple(rest)) if rest else program


_CHANGES = (_inserted, _inserted, _deleted, _nudged, _nudged, _other_source, _other_saver, _doubled, _dropped)
