import asyncio
from collections.abc import Iterator, Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from vtune.errors import RunFailed
from vtune.rollout.engine import Weights
from vtune.runs.train import rollout_scheduler
from vtune.runs.train.rollout_scheduler import RolloutScheduler


class Log:
    """An engine that only records hand-overs, and the order of events."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.version = -1

    async def take(self, weights: object, version: int) -> None:
        self.version = version
        self.said.append(f"take {version}")

    async def rest(self) -> None:
        self.said.append("rest")

    async def draw(self, step: int) -> tuple[int, int]:
        version = self.version
        self.said.append(f"draw {step}")
        await asyncio.sleep(0.01)
        assert self.version == version, "weights changed while a step was drawn"
        return step, version


def told(staleness: int, steps: int = 3, first: int = 0) -> tuple[list[str], list[tuple[int, int]]]:
    async def run() -> tuple[list[str], list[tuple[int, int]]]:
        log, found = Log(), []
        rollouts = RolloutScheduler(
            log.draw,
            log,
            lambda: iter(()),
            lambda: None,
            staleness=staleness,
            steps=steps,  # type: ignore[arg-type]
        )
        for step in range(first, steps):
            found.append(await rollouts.of(step))
            await asyncio.sleep(0.005)
            log.said.append(f"train {step}")
        await rollouts.aclose()
        return log.said, found

    return asyncio.run(run())


def test_on_policy_every_step_uses_its_own_weights_and_then_the_engine_sleeps() -> None:
    said, found = told(0)
    assert found == [(0, 0), (1, 1), (2, 2)]
    assert said[:4] == ["take 0", "draw 0", "rest", "train 0"]


def test_one_step_off_the_next_step_is_generated_during_training_with_the_latest_weights() -> None:
    said, found = told(1)
    assert found == [(0, 0), (1, 0), (2, 1)]
    assert said == [
        "take 0", "draw 0", "draw 1", "train 0", "take 1", "draw 2", "train 1", "take 2", "train 2",
    ]  # fmt: skip


def test_a_resumed_run_starts_with_the_weights_that_it_has() -> None:
    assert told(1, first=2)[1] == [(2, 2)]


def test_work_generated_ahead_is_dropped_with_the_run() -> None:
    async def run() -> bool:
        log = Log()
        rollouts = RolloutScheduler(
            log.draw,
            log,
            lambda: iter(()),
            lambda: None,
            staleness=1,
            steps=3,  # type: ignore[arg-type]
        )
        await rollouts.of(0)
        await asyncio.sleep(0)
        (ahead,) = rollouts._ahead.values()
        await rollouts.aclose()
        return ahead.cancelled()

    assert asyncio.run(run())


def test_a_hand_over_that_fails_goes_through_all_weights_because_others_gather_with_it() -> None:
    gathered: list[str] = []

    def weights() -> Iterator[tuple[str, torch.Tensor]]:
        for name in ("a", "b", "c"):
            gathered.append(name)
            yield name, torch.zeros(1)

    class Dies(Log):
        async def take(self, weights: Weights, version: int) -> None:  # type: ignore[override]
            next(weights())
            raise RunFailed("died")

    waited: list[str] = []
    rollouts = RolloutScheduler(
        Log().draw,
        Dies(),  # type: ignore[arg-type]
        weights,
        lambda: waited.append("wait"),
        staleness=0,
        steps=1,
    )
    with pytest.raises(RunFailed, match="died"):
        asyncio.run(rollouts.of(0))
    assert gathered == ["a", "b", "c"]
    assert len(waited) == 2


def test_a_process_whose_draw_ahead_failed_still_hands_over_as_the_others_wait_for_it() -> None:
    waited: list[int] = []
    log = Log()

    async def draw(step: int) -> tuple[int, int]:
        if step == 1:
            raise RunFailed("the engine died")
        return await log.draw(step)

    async def run() -> None:
        rollouts = RolloutScheduler(
            draw,
            log,
            lambda: iter(()),
            lambda: waited.append(len(log.said)),
            staleness=1,
            steps=3,  # type: ignore[arg-type]
        )
        await rollouts.of(0)
        waited.clear()
        with pytest.raises(RunFailed, match="the engine died"):
            await rollouts.of(1)

    asyncio.run(run())
    assert len(waited) == 2
    assert log.said[-1] == "take 1"


@pytest.mark.parametrize("awake", [True, False], ids=["sleeps", "is dead"])
@pytest.mark.parametrize("error", [RunFailed("the draw failed"), KeyError("the draw failed")])
def test_a_process_whose_draw_failed_still_rests_with_those_that_share_its_engine(
    awake: bool, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As with a user's own part, which may raise a `KeyError`.
    monkeypatch.setattr(rollout_scheduler, "run_failure", lambda error: RunFailed(str(error)))

    async def run() -> list[object]:
        meeting = asyncio.Barrier(2)

        class Shared(Log):
            async def rest(self) -> None:
                await meeting.wait()
                if not awake:
                    raise RunFailed("it cannot sleep")

        class Fails(Shared):
            async def draw(self, step: int) -> tuple[int, int]:
                raise error

        async def drawn(log: Log) -> tuple[int, int]:
            rollouts = RolloutScheduler(
                log.draw,
                log,
                lambda: iter(()),
                lambda: None,
                staleness=0,
                steps=1,  # type: ignore[arg-type]
            )
            return await rollouts.of(0)

        both = asyncio.gather(drawn(Fails()), drawn(Shared()), return_exceptions=True)
        return list(await asyncio.wait_for(both, 10))

    failed, other = asyncio.run(run())
    assert failed is error
    assert other == (0, 0) if awake else "it cannot sleep" in str(other)


class Goes(Log):
    """An engine whose weights may change while it generates; each step takes a moment, as does training."""

    def __init__(self, moments: Sequence[int]) -> None:
        super().__init__()
        self.moments = moments
        self.under_way = self.most = 0

    async def draw(self, step: int) -> tuple[int, list[int]]:  # type: ignore[override]
        self.said.append(f"draw {step}")
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        versions = []
        for _ in range(1 + self.moments[step % len(self.moments)]):
            versions.append(self.version)
            await asyncio.sleep(0)
        self.under_way -= 1
        return step, versions


def interrupted(
    log: Goes, staleness: int, steps: int, *, trains: int, settles: int | None = None
) -> list[list[int]]:
    """The versions that generated each step."""

    async def run() -> list[list[int]]:
        found = []
        rollouts = RolloutScheduler(
            log.draw,
            log,  # type: ignore[arg-type]
            lambda: iter(()),
            lambda: None,
            staleness=staleness,
            interrupt=True,
            steps=steps,
        )
        for step in range(steps):
            await rollouts.ready(step)
            if step == settles:
                await rollouts.settled()
                assert log.under_way == 0
            number, versions = await rollouts.of(step)
            assert number == step
            found.append(versions)
            for _ in range(trains):
                await asyncio.sleep(0)
            log.said.append(f"train {step}")
        await rollouts.aclose()
        assert log.under_way == 0
        return found

    return asyncio.run(run())


@given(
    moments=st.lists(st.integers(0, 12), min_size=1, max_size=5),
    staleness=st.integers(1, 4),
    steps=st.integers(1, 7),
    trains=st.integers(0, 6),
    settles=st.none() | st.integers(0, 6),
)
def test_weights_change_under_what_is_drawn_and_no_token_is_further_behind_than_allowed(
    moments: list[int], staleness: int, steps: int, trains: int, settles: int | None
) -> None:
    log = Goes(moments)
    found = interrupted(log, staleness, steps, trains=trains, settles=settles)
    for step, versions in enumerate(found):
        assert versions == sorted(versions)
        assert max(0, step - staleness) <= versions[0] <= versions[-1] <= step
    assert log.most <= staleness + 1
    assert [one for one in log.said if one[:4] == "take"] == [f"take {step}" for step in range(steps)]
    assert [one for one in log.said if one[:4] == "draw"] == [f"draw {step}" for step in range(steps)]
    # Each is handed over as soon as it exists, without waiting for generation to finish.
    assert all(log.said[log.said.index(f"train {n}") + 1] == f"take {n + 1}" for n in range(steps - 1))


def test_a_step_may_be_generated_by_several_versions() -> None:
    first, _, third = interrupted(Goes([3, 3, 40]), 2, 3, trains=3)
    assert set(first) == {0}
    assert set(third) == {0, 1, 2}


def test_what_has_failed_ahead_is_told_when_its_step_is_asked_for_and_weights_are_handed_over_meanwhile() -> (
    None
):
    class Fails(Goes):
        async def draw(self, step: int) -> tuple[int, list[int]]:  # type: ignore[override]
            if step == 2:
                raise RunFailed("the engine died")
            return await super().draw(step)

    log = Fails([1])
    with pytest.raises(RunFailed, match="the engine died"):
        interrupted(log, 2, 4, trains=2)
    assert [one for one in log.said if one[:5] in ("take ", "train")] == [
        "take 0", "train 0", "take 1", "train 1", "take 2",
    ]  # fmt: skip
