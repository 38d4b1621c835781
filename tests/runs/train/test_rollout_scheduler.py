import asyncio
from collections.abc import Iterator

import pytest
import torch

from vtune.errors import RunFailed
from vtune.rollout.engine import Weights
from vtune.runs.train.rollout_scheduler import RolloutScheduler


class Log:
    """An engine of which only hand-overs matter, and the order in which things happen."""

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


def test_on_policy_every_step_is_drawn_with_its_own_weights_and_then_the_engine_rests() -> None:
    said, found = told(0)
    assert found == [(0, 0), (1, 1), (2, 2)]
    assert said[:4] == ["take 0", "draw 0", "rest", "train 0"]


def test_one_step_off_the_next_step_is_drawn_while_one_trains_and_never_with_older_weights() -> None:
    said, found = told(1)
    assert found == [(0, 0), (1, 0), (2, 1)]
    assert said == [
        "take 0", "draw 0", "draw 1", "train 0", "take 1", "draw 2", "train 1", "take 2", "train 2",
    ]  # fmt: skip


def test_a_resumed_run_starts_with_the_weights_that_it_has() -> None:
    assert told(1, first=2)[1] == [(2, 2)]


def test_what_is_drawn_ahead_is_given_up_with_the_run() -> None:
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
        ahead = rollouts._ahead
        await rollouts.aclose()
        return ahead is not None and ahead.cancelled()

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
def test_a_process_whose_draw_failed_still_rests_with_those_that_share_its_engine(awake: bool) -> None:
    async def run() -> list[object]:
        meeting = asyncio.Barrier(2)

        class Shared(Log):
            async def rest(self) -> None:
                await meeting.wait()
                if not awake:
                    raise RunFailed("it cannot sleep")

        class Fails(Shared):
            async def draw(self, step: int) -> tuple[int, int]:
                raise RunFailed("the draw failed")

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
    assert isinstance(failed, RunFailed)
    assert "the draw failed" in str(failed)
    assert other == (0, 0) if awake else "it cannot sleep" in str(other)
