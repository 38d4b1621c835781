import asyncio
import os
import signal
import time

import pytest

from tests.verifiers.cases import sample, wrap
from vtune.errors import DataError, ServiceError
from vtune.schema.message import Message, Picture
from vtune.schema.sample import Evidence, Sample
from vtune.verifiers.verifying import Verifying


def test_workers_judge_many_replies_and_send_errors_back() -> None:
    seen = Sample(
        id="quiz/1",
        source="quiz",
        prompt=(Message("user", "<image>How many?"),),
        images=(Picture(b"x" * 100),),
        evidence=(Evidence("cup", 0, (0, 0, 1, 1)),),
        ground_truth="7",
        verifier="math",
    )

    async def story() -> tuple[list[float], bool]:
        async with Verifying(workers=1, timeout_s=60) as verifying:
            verdicts = await asyncio.gather(
                verifying.verify(wrap("7"), seen),
                verifying.verify(wrap("8"), seen),
                verifying.verify(wrap("B"), sample("choice", "B")),
            )
            with pytest.raises(DataError, match="cannot read the ground truth"):
                await verifying.verify(wrap("7"), sample("math", ""))
            alive = (await verifying.verify(wrap("7"), seen)).score == 1.0
        return [verdict.score for verdict in verdicts], alive

    assert asyncio.run(story()) == ([1.0, 0.0, 1.0], True)


def test_a_dead_or_hanging_worker_leaves_the_reply_unscored_and_is_replaced() -> None:
    question = sample("math", "7")

    async def story() -> None:
        async with Verifying(workers=1, timeout_s=60) as verifying:
            await verifying.verify(wrap("7"), question)
            (worker,) = verifying._workers
            assert worker._process is not None
            os.kill(worker._process.pid or 0, signal.SIGKILL)
            with pytest.raises(ServiceError, match="died"):
                await verifying.verify(wrap("7"), question)
            worker._timeout_s = 0.0
            started = time.monotonic()
            with pytest.raises(ServiceError, match="no verdict"):
                await verifying.verify(wrap("7"), question)
            assert time.monotonic() - started < 30
            worker._timeout_s = 60
            assert (await verifying.verify(wrap("7"), question)).score == 1.0

    asyncio.run(story())


def test_a_verifier_that_needs_no_worker_starts_none() -> None:
    async def story() -> None:
        async with Verifying() as verifying:
            assert (await verifying.verify(wrap("b"), sample("choice", "B"))).score == 1.0
            assert all(worker._process is None for worker in verifying._workers)

    asyncio.run(story())
