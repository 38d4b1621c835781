"""A genome as source code for one puzzle, and what is known of the pictures that it saves."""

from dataclasses import dataclass

from vtune.sandbox.attacks.programs.draft import HEADER, Place
from vtune.sandbox.attacks.programs.genome import Program
from vtune.sandbox.attacks.programs.honest import HONEST
from vtune.sandbox.attacks.programs.hostile import HOSTILE
from vtune.sandbox.attacks.programs.savers import HONEST_SAVERS, SAVERS
from vtune.sandbox.attacks.programs.sources import KNOWING, SOURCES

OPERATIONS = HONEST | HOSTILE


@dataclass(frozen=True, slots=True)
class Picture:
    """What is known of a picture that a program saves."""

    width: int
    height: int
    places: tuple[Place, ...]
    """Where the input would be in it if no operation had removed anything. Empty if another picture has taken
    its place."""
    honest: bool
    """A single crop, with nothing but honest operations on it."""
    displayed: bool = False
    """It is returned under a name chosen by the sandbox, not under that of its shot."""


@dataclass(frozen=True, slots=True)
class Written:
    """A program for one puzzle."""

    calls: tuple[str, ...]
    pictures: tuple[tuple[Picture, ...], ...]
    """For each call, in the order in which they are saved."""


def knows_target(program: Program) -> bool:
    """Whether the program differs from question to question."""
    return any(shot.source.name in KNOWING for shot in program.shots)


def is_honest(program: Program) -> bool:
    """Whether it consists only of honest parts."""
    return all(
        shot.saver.name in HONEST_SAVERS and all(step.name in HONEST for step in shot.steps)
        for shot in program.shots
    )


def written(program: Program, box: tuple[int, int, int, int], size: tuple[int, int]) -> Written:
    """The program's calls as source text.

    Args:
        program: The genome.
        box: The target, xyxy in pixels of the input.
        size: (width, height) of the input.
    """
    calls, pictures = [], []
    for k, call in enumerate(program.calls):
        lines, found = [HEADER], []
        for n, shot in enumerate(call):
            draft = SOURCES[shot.source.name](box, size, shot.source.numbers)
            for step in shot.steps:
                OPERATIONS[step.name](draft, step.numbers)
                draft.honest = draft.honest and step.name in HONEST
            SAVERS[shot.saver.name](draft, f"p{k}_{n}", shot.saver.numbers)
            lines += draft.lines
            honest = draft.honest and shot.saver.name in HONEST_SAVERS
            places = draft.places if draft.first else ()
            displayed = shot.saver.name == "shown"
            found.append(Picture(draft.width, draft.height, places, honest, displayed))
        calls.append("\n".join(lines))
        pictures.append(tuple(found))
    return Written(tuple(calls), tuple(pictures))
