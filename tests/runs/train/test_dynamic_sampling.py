import asyncio
from collections.abc import Callable, Sequence

from hypothesis import given
from hypothesis import strategies as st

from vtune.runs.train.dynamic_sampling import DynamicSampling, StepGroups
from vtune.schema.trajectory import Trajectory

GROUP = 2
"""Rollouts per prompt."""


def sampling(
    zero_variance: Callable[[int], bool],
    *,
    share: int,
    rounds: int,
    taken: int = 0,
    asked: list[range] | None = None,
) -> DynamicSampling:
    """Generates rollouts with rewards 0 and 1, or 1 twice if the prompt has zero variance."""

    async def draw(step: int, numbers: range) -> list[Trajectory]:
        if asked is not None:
            asked.append(numbers)
        await asyncio.sleep(0)
        return [
            Trajectory(sample_id=str(n), source="s", group=n, rollout=k, policy_version=step)
            for n in numbers
            for k in range(GROUP)
        ]

    def rewards(found: Sequence[Trajectory]) -> list[float | None]:
        return [1.0 if zero_variance(t.group) else float(t.rollout) for t in found]

    return DynamicSampling(draw, rewards, share=share, rounds=rounds, taken=taken)


def steps(one: DynamicSampling, numbers: Sequence[int]) -> list[StepGroups]:
    async def all_of_them() -> list[StepGroups]:
        return [await one.of(step) for step in numbers]

    return asyncio.run(all_of_them())


def test_zero_variance_groups_are_replaced_by_the_next_prompts() -> None:
    asked: list[range] = []
    first, second = steps(sampling(lambda n: n in {1, 2, 4}, share=4, rounds=2, asked=asked), [0, 1])
    # Of 0-3 two have zero variance; of 4 and 5 one does; 6 fills the step.
    assert asked[:3] == [range(4), range(4, 6), range(6, 7)]
    assert first.kept == {0, 3, 5, 6}
    assert (first.groups, first.zero_variance, first.taken) == (7, 3, 7)
    assert [t.group for t in first.trajectories[::GROUP]] == list(range(7))
    assert second.kept == {7, 8, 9, 10}


def test_unscored_groups_are_not_replaced() -> None:
    async def draw(step: int, numbers: range) -> list[Trajectory]:
        return [Trajectory(sample_id=str(n), source="s", group=n, rollout=k) for n in numbers for k in (0, 1)]

    def rewards(found: Sequence[Trajectory]) -> list[float | None]:
        return [{0: None, 1: 1.0}.get(t.group, float(t.rollout)) for t in found]

    (step,) = steps(DynamicSampling(draw, rewards, share=3, rounds=2, taken=0), [0])
    assert (step.groups, step.zero_variance, step.taken) == (4, 1, 4)
    assert step.kept == {0, 2, 3}


def test_without_rounds_left_zero_variance_groups_fill_the_step() -> None:
    for rounds in (0, 1, 3):
        (step,) = steps(sampling(lambda n: n != 1, share=3, rounds=rounds), [0])
        assert step.kept == ({0, 1, 2} if rounds == 0 else {1, 0, 2})
        assert step.taken == step.groups == 3 + 2 * rounds


def test_without_dynamic_sampling_every_step_takes_its_own_prompts() -> None:
    found = steps(sampling(lambda n: True, share=3, rounds=0), [0, 1, 2])
    assert [sorted(one.kept) for one in found] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


@given(
    zero_variance=st.frozensets(st.integers(0, 40)), share=st.integers(1, 4), rounds=st.integers(0, 3),
    cut=st.integers(0, 4),
)  # fmt: skip
def test_a_resumed_run_samples_the_same_steps(
    zero_variance: frozenset[int], share: int, rounds: int, cut: int
) -> None:
    whole = steps(sampling(zero_variance.__contains__, share=share, rounds=rounds), range(5))
    position = whole[cut - 1].taken if cut else 0
    resumed = steps(
        sampling(zero_variance.__contains__, share=share, rounds=rounds, taken=position), range(cut, 5)
    )
    assert resumed == whole[cut:]
    for one in whole:
        assert len(one.kept) == share
        assert len(one.trajectories) == GROUP * one.groups <= GROUP * share * (1 + rounds)
        # A zero-variance group is kept only if there are not enough others.
        telling = one.groups - one.zero_variance
        assert sum(group not in zero_variance for group in one.kept) == min(telling, share)


def test_concurrent_steps_take_the_same_prompts_as_alone() -> None:
    for rounds in (0, 2):
        one = sampling(lambda n: n % 3 == 0, share=4, rounds=rounds)
        apart = steps(sampling(lambda n: n % 3 == 0, share=4, rounds=rounds), range(3))

        async def together(drawn: DynamicSampling = one) -> list[StepGroups]:
            return list(await asyncio.gather(*(drawn.of(step) for step in range(3))))

        assert asyncio.run(together()) == apart
