"""Random programs: genomes that survive a round trip, and source text that parses."""

import ast
import random

from hypothesis import given
from hypothesis import strategies as st

from vtune.sandbox.attacks.programs import (
    Program,
    crossed,
    from_record,
    mutated,
    random_program,
    record_of,
    written,
)
from vtune.sandbox.attacks.programs.breeding import MOST_CALLS, MOST_SHOTS, MOST_STEPS
from vtune.sandbox.attacks.programs.writing import HONEST, HOSTILE, is_honest, knows_target
from vtune.sandbox.scan import Scanner

BOX, SIZE = (200, 120, 256, 176), (448, 448)
SEEDS = st.integers(0, 10_000)


def line(seed: int, *, blind: bool) -> list[Program]:
    """A program and four generations of its descendants."""
    rng = random.Random(seed)
    found = [random_program(rng, blind=blind)]
    for _ in range(4):
        found.append(mutated(found[-1], rng, blind=blind))
        found.append(crossed(found[-1], found[0], rng))
    return found


def test_there_are_more_than_forty_operations_of_each_kind() -> None:
    assert min(len(HONEST), len(HOSTILE)) > 40
    assert not set(HONEST) & set(HOSTILE)


@given(SEEDS, st.booleans())
def test_programs_are_python_that_the_scan_lets_pass(seed: int, blind: bool) -> None:
    for program in line(seed, blind=blind):
        scanner = Scanner()
        for code in written(program, BOX, SIZE).calls:
            assert scanner.scan(code, ast.parse(code)) == []


@given(SEEDS)
def test_blind_programs_stay_the_same_for_every_target(seed: int) -> None:
    for program in line(seed, blind=True):
        assert not knows_target(program)
        assert written(program, BOX, SIZE).calls == written(program, (8, 8, 64, 64), SIZE).calls


@given(SEEDS, st.booleans())
def test_programs_stay_within_what_a_sandbox_returns(seed: int, blind: bool) -> None:
    for program in line(seed, blind=blind):
        assert 1 <= len(program.calls) <= MOST_CALLS
        assert all(1 <= len(call) <= MOST_SHOTS for call in program.calls)
        assert all(len(shot.steps) <= MOST_STEPS for shot in program.shots)


@given(SEEDS, st.booleans())
def test_a_program_survives_its_record(seed: int, blind: bool) -> None:
    program = random_program(random.Random(seed), blind=blind)
    assert from_record(record_of(program)) == program


@given(SEEDS)
def test_one_hostile_part_makes_a_program_hostile(seed: int) -> None:
    program = random_program(random.Random(seed), blind=False)
    hostile = set(program.names) & set(HOSTILE)
    assert not (hostile and is_honest(program))
