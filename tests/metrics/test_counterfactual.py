from collections.abc import Mapping

import pytest

from vtune.metrics.counterfactual import Answered, Rerun, dependence, resolution


def answered(
    number: int,
    reruns: Mapping[str, Rerun] | None = None,
    *,
    correct: bool | None = True,
    faithful: bool | None = True,
    looked: bool = True,
    calls: int = 1,
    pixels: int = 10,
) -> Answered:
    return Answered(
        cluster=str(number),
        source="a" if number % 2 else "b",
        pixels=pixels,
        calls=calls,
        correct=correct,
        faithful=faithful,
        looked=looked,
        reruns=reruns or {},
    )


def rerun(right: bool | None, shown: bool = True, **more: object) -> dict[str, Rerun]:
    return {"black": Rerun(right=right, tokens=10, **more), "shown": Rerun(right=shown)}  # type: ignore[arg-type]


ROWS = [
    answered(0, rerun(False)),
    answered(1, rerun(False, again=True), faithful=False),
    answered(2, rerun(True, same=True), calls=4),
    answered(3, rerun(False, shown=False), pixels=5_000_000),
    answered(4, looked=False, calls=0),
    answered(5, correct=False),
    answered(6, rerun(None, why="the judge gave no reply")),
    answered(7, correct=None),
]


def test_dependence_is_given_with_every_denominator() -> None:
    found = dependence(ROWS, "black", seed=0, max_unscored=0.2)
    assert (found.n, found.n_unscored, found.why) == (4, 1, "the judge gave no reply")
    shares = (found.dependent_of_looked, found.dependent_of_correct, found.dependent_of_all)
    assert [one.value for one in shares if one is not None] == pytest.approx([3 / 4, 3 / 5, 3 / 6])
    assert found.beyond_chance is not None
    assert found.beyond_chance.value == pytest.approx(2 / 4)
    assert found.asked_again is not None
    assert found.asked_again.value == 1 / 4
    assert found.same_text is not None
    assert found.same_text.value == 1 / 4
    assert found.tokens == 10


def test_the_table_compares_the_judge_with_exchanged_pictures() -> None:
    found = dependence(ROWS, "black", seed=0, max_unscored=0.2)
    values = {name: one.value for name, one in found.table.items() if one is not None}
    assert values == {
        "faithful_dependent": 1 / 2,
        "faithful_independent": 1 / 4,
        "unfaithful_dependent": 1 / 4,
        "unfaithful_independent": 0.0,
    }
    assert (found.agreement.n, found.agreement.both) == (4, 2)


def test_dependence_is_split_by_source_resolution_and_calls() -> None:
    found = dependence(ROWS, "black", seed=0, max_unscored=0.2).by
    assert {kind: {name: part.n for name, part in parts.items()} for kind, parts in found.items()} == {
        "source": {"a": 2, "b": 2},
        "resolution": {"from 4 MP": 1, "under 1 MP": 3},
        "calls": {"1": 3, "3+": 1},
    }
    late = found["calls"]["3+"].dependent
    assert late is not None
    assert late.value == 0.0
    assert [resolution(one) for one in (999_999, 1_000_000, 4_000_000)] == [
        "under 1 MP",
        "1 to 4 MP",
        "from 4 MP",
    ]


def test_tokens_are_averaged_over_generated_turns_with_known_counts() -> None:
    # One turn of 10 tokens, one by an endpoint, and one that needed no generation.
    reruns = (Rerun(right=False, tokens=10), Rerun(right=False), Rerun(right=True, same=True))
    rows = [answered(number, {"black": one}) for number, one in enumerate(reruns)]
    assert dependence(rows, "black", seed=0, max_unscored=0.2).tokens == 10.0
    assert dependence(rows[1:], "black", seed=0, max_unscored=0.2).tokens is None


def test_without_reruns_nothing_is_reported() -> None:
    found = dependence([answered(0, looked=False)], "black", seed=0, max_unscored=0.2)
    assert (found.n, found.dependent_of_looked, found.tokens) == (0, None, None)
    assert found.dependent_of_correct is not None
    assert found.dependent_of_correct.value == 0.0
    assert dependence([], "black", seed=0, max_unscored=0.2).dependent_of_all is None


def test_shares_of_all_right_answers_are_unknown_if_too_many_looking_ones_are() -> None:
    # Nothing is known about the one right answer; all wrong ones are known and ignore their picture.
    rows = [answered(0, rerun(None, why="only lens puzzles")), answered(1, correct=False)]
    found = dependence(rows, "black", seed=0, max_unscored=0.05)
    assert (found.n, found.n_unscored, found.why) == (0, 1, "only lens puzzles")
    assert found.dependent_of_all is None
    assert found.dependent_of_correct is None
    some = dependence(ROWS, "black", seed=0, max_unscored=0.19)
    assert some.dependent_of_looked is not None
    assert some.dependent_of_all is None
