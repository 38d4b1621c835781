"""A program as a genome: calls made of shots, each with a source, operations and a way to save."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

NUMBERS = 4
"""Parameters of a step, each in [0, 1]; an operation reads as many as it needs."""


@dataclass(frozen=True, slots=True)
class Step:
    """One operation and its parameters."""

    name: str
    numbers: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Shot:
    """The steps that make one picture (or a few)."""

    source: Step
    steps: tuple[Step, ...]
    saver: Step


@dataclass(frozen=True, slots=True)
class Program:
    """What a policy might write: calls of a few shots each."""

    calls: tuple[tuple[Shot, ...], ...]

    @property
    def shots(self) -> tuple[Shot, ...]:
        """The shots of all calls, in order."""
        return tuple(shot for call in self.calls for shot in call)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all its steps, in order."""
        return tuple(step.name for shot in self.shots for step in (shot.source, *shot.steps, shot.saver))


def record_of(program: Program) -> list[Any]:
    """As JSON: calls of shots of [name, numbers]."""
    return [
        [
            [[step.name, list(step.numbers)] for step in (shot.source, *shot.steps, shot.saver)]
            for shot in call
        ]
        for call in program.calls
    ]


def from_record(record: Sequence[Sequence[Sequence[Any]]]) -> Program:
    """The program that `record_of` wrote."""
    calls = []
    for call in record:
        shots = []
        for shot in call:
            first, *middle, last = [Step(str(name), tuple(numbers)) for name, numbers in shot]
            shots.append(Shot(first, tuple(middle), last))
        calls.append(tuple(shots))
    return Program(tuple(calls))
