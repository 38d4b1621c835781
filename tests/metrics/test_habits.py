"""How a policy looks and what its answers follow: compared with hand counts and a plain count."""

from dataclasses import dataclass, field, fields
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from vtune.metrics.habits import LOOKS, Habit, Habits, habits, look_of
from vtune.metrics.intervals import Estimate

NUMBERS = count()


@dataclass(frozen=True)
class Looked:
    correct: bool | None
    calls: int
    any_faithful: bool | None
    whole: bool = False
    by_cue: bool | None = None
    cluster: str = field(default_factory=lambda: f"question {next(NUMBERS)}")


ROWS = [
    Looked(True, 1, True),  # the cue is right, or missing: what the answer follows is unknown
    Looked(True, 1, True, by_cue=False),  # looks and uses it
    Looked(False, 2, True, whole=True, by_cue=True),  # looks, and answers by the cue
    Looked(False, 1, False, whole=True, by_cue=True),
    Looked(False, 1, False, by_cue=False),  # looks at the wrong place and guesses
    Looked(True, 0, False),
    Looked(False, 0, False, by_cue=True),
    Looked(False, 0, False, by_cue=True),
    Looked(None, 1, True),
    Looked(True, 1, None),
]


def value(estimate: Estimate | None) -> float | None:
    return None if estimate is None else round(estimate.value, 6)


def row(habit: Habit) -> tuple[int | None, float | None, float | None, float | None, float | None]:
    return (habit.n, *map(value, (habit.share, habit.accuracy, habit.by_cue, habit.by_target)))


def test_ways_to_look_and_what_answers_follow_are_counted() -> None:
    found = habits(ROWS, seed=0, max_unaudited=0.2)
    assert (found.n, found.left_out) == (8, 2)
    assert row(found.shows) == (3, 0.375, round(2 / 3, 6), 0.5, 0.5)
    assert row(found.whole) == (1, 0.125, 0.0, 1.0, 0.0)
    assert row(found.miss) == (1, 0.125, 0.0, 0.0, 0.0)
    assert row(found.none) == (3, 0.375, round(1 / 3, 6), 1.0, 0.0)
    # Of six with a wrong cue, four follow it, one follows the target, and one neither.
    assert row(found.everything) == (8, 1.0, 0.375, round(4 / 6, 6), round(1 / 6, 6))


def test_if_hardly_any_look_was_judged_no_looks_are_reported() -> None:
    """Otherwise the rest would look like a policy that never looks."""
    rows = [*(Looked(True, 1, None) for _ in range(9)), Looked(False, 0, False)]
    found = habits(rows, seed=0, max_unaudited=0.05)
    assert (found.n, found.left_out) == (10, 0)
    assert row(found.everything)[:3] == (10, 1.0, 0.9)
    assert row(found.none)[:3] == (1, 0.1, 0.0)
    for habit in (found.whole, found.miss, found.shows):
        assert row(habit) == (None,) * 5


def test_without_trajectories_nothing_is_reported() -> None:
    found = habits([Looked(None, 1, True)], seed=0, max_unaudited=0.2)
    assert (found.n, found.left_out) == (0, 1)
    assert row(found.everything) == (0, None, None, None, None)
    assert row(habits([Looked(True, 0, False)], seed=0, max_unaudited=0.2).none) == (1, 1.0, 1.0, None, None)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.builds(
            Looked,
            correct=st.sampled_from([True, False, None]),
            calls=st.integers(0, 2),
            any_faithful=st.sampled_from([True, False, None]),
            whole=st.booleans(),
            by_cue=st.sampled_from([True, False, None]),
        ),
        max_size=30,
    )
)
def test_the_ways_to_look_cover_all_trajectories(rows: list[Looked]) -> None:
    found = habits(rows, seed=0, max_unaudited=1.0)
    ways = [getattr(found, look) for look in LOOKS]
    assert {*LOOKS} == {f.name for f in fields(Habits)} - {"n", "left_out", "everything"}
    assert sum(way.n for way in ways) == found.n == found.everything.n
    assert found.n + found.left_out == len(rows)
    for look, way in zip(LOOKS, ways, strict=True):
        here = [row for row in rows if row.correct is not None and look_of(row) == look]
        assert way.n == len(here)
        cued = [row for row in here if row.by_cue is not None]
        expected = sum(bool(row.by_cue) for row in cued) / len(cued) if cued else None
        assert value(way.by_cue) == (None if expected is None else round(expected, 6))
