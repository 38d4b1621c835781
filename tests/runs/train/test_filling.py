import asyncio
from collections.abc import Callable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from vtune.runs.train.filling import Filled, Filling
from vtune.schema.trajectory import Trajectory

GROUP = 2
"""Rollouts of one prompt."""


def filling(
    silent: Callable[[int], bool],
    *,
    share: int,
    refills: int,
    taken: int = 0,
    asked: list[range] | None = None,
) -> Filling:
    """Draws rollouts whose rewards are 0 and 1, or twice 1 where the prompt is silent."""

    async def draw(step: int, numbers: range) -> list[Trajectory]:
        if asked is not None:
            asked.append(numbers)
        return [
            Trajectory(sample_id=str(n), source="s", group=n, rollout=k, policy_version=step)
            for n in numbers
            for k in range(GROUP)
        ]

    def rewards(found: Sequence[Trajectory]) -> list[float | None]:
        return [1.0 if silent(t.group) else float(t.rollout) for t in found]

    return Filling(draw, rewards, share=share, refills=refills, taken=taken)


def steps(one: Filling, numbers: Sequence[int]) -> list[Filled]:
    async def all_of_them() -> list[Filled]:
        return [await one.of(step) for step in numbers]

    return asyncio.run(all_of_them())


def test_silent_groups_are_replaced_by_the_next_prompts() -> None:
    asked: list[range] = []
    first, second = steps(filling(lambda n: n in {1, 2, 4}, share=4, refills=2, asked=asked), [0, 1])
    # Of 0-3 two are silent; of 4 and 5 one is; 6 fills the step.
    assert asked[:3] == [range(4), range(4, 6), range(6, 7)]
    assert first.kept == {0, 3, 5, 6}
    assert (first.groups, first.silent, first.taken) == (7, 3, 7)
    assert [t.group for t in first.trajectories[::GROUP]] == list(range(7))
    assert second.kept == {7, 8, 9, 10}


def test_a_step_is_made_up_of_silent_groups_where_no_refill_is_left() -> None:
    for refills in (0, 1, 3):
        (step,) = steps(filling(lambda n: n != 1, share=3, refills=refills), [0])
        assert step.kept == ({0, 1, 2} if refills == 0 else {1, 0, 2})
        assert step.taken == step.groups == 3 + 2 * refills


def test_without_refills_every_step_takes_its_own_prompts() -> None:
    found = steps(filling(lambda n: True, share=3, refills=0), [0, 1, 2])
    assert [sorted(one.kept) for one in found] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


@given(
    silent=st.frozensets(st.integers(0, 40)), share=st.integers(1, 4), refills=st.integers(0, 3),
    cut=st.integers(0, 4),
)  # fmt: skip
def test_a_resumed_run_draws_the_same_steps(
    silent: frozenset[int], share: int, refills: int, cut: int
) -> None:
    whole = steps(filling(silent.__contains__, share=share, refills=refills), range(5))
    position = whole[cut - 1].taken if cut else 0
    resumed = steps(filling(silent.__contains__, share=share, refills=refills, taken=position), range(cut, 5))
    assert resumed == whole[cut:]
    for one in whole:
        assert len(one.kept) == share
        assert len(one.trajectories) == GROUP * one.groups <= GROUP * share * (1 + refills)
        # A silent group stays only where there are not enough others.
        telling = one.groups - one.silent
        assert sum(group not in silent for group in one.kept) == min(telling, share)
