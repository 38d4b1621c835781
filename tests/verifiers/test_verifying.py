import asyncio
import os
import signal
import socket
import time
from multiprocessing.context import SpawnProcess

import pytest

from tests.verifiers.cases import sample, wrap
from vtune.errors import DataError, ServiceError
from vtune.schema.message import Message, Picture
from vtune.schema.sample import Evidence, Sample
from vtune.verifiers.verifying import AHEAD, Verifying, _Worker


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


def test_who_shares_a_worker_with_one_that_dies_or_hangs_is_verified_all_the_same() -> None:
    hard = sample("math", "7")

    async def story() -> None:
        async with Verifying(workers=1, timeout_s=60) as verifying:
            await verifying.verify(wrap("7"), hard)
            (worker,) = verifying._workers
            for _ in range(2):
                assert worker._process is not None
                os.kill(worker._process.pid or 0, signal.SIGSTOP)
                asking = [asyncio.create_task(verifying.verify(wrap(f"{n}"), hard)) for n in range(6, 13)]
                await asyncio.sleep(0.01)
                assert len(worker.asked) == AHEAD < len(asking)
                os.kill(worker._process.pid or 0, signal.SIGKILL)
                lost, *found = await asyncio.gather(*asking, return_exceptions=True)
                assert isinstance(lost, ServiceError)
                assert [getattr(one, "score", one) for one in found] == [1.0, 0.0, 0.0, 0.0, 0.0, 0.0]

    asyncio.run(story())


def test_a_reply_larger_than_the_pipe_does_not_stop_the_loop_while_the_worker_is_busy() -> None:
    question = sample("math", "7")
    long = wrap("7").replace("<think>", "<think>" + "so " * 10**6)

    async def story() -> list[float]:
        async with Verifying(workers=1, timeout_s=60) as verifying:
            verifying.start()
            (worker,) = verifying._workers
            assert worker._process is not None
            os.kill(worker._process.pid or 0, signal.SIGSTOP)
            asking = [
                asyncio.create_task(verifying.verify(reply, question)) for reply in (long, wrap("8"), long)
            ]
            await asyncio.wait_for(asyncio.sleep(0.05), 1)
            os.kill(worker._process.pid or 0, signal.SIGCONT)
            return [verdict.score for verdict in await asyncio.gather(*asking)]

    assert asyncio.run(story()) == [1.0, 0.0, 1.0]


def test_who_stops_waiting_takes_no_verdict_from_the_others() -> None:
    question = sample("math", "7")

    async def story() -> list[float]:
        async with Verifying(workers=1, timeout_s=60) as verifying:
            asking = [asyncio.create_task(verifying.verify(wrap(f"{n}"), question)) for n in range(5, 11)]
            await asyncio.sleep(0)
            asking.pop(0).cancel()  # the worker is at it
            asking.pop(-1).cancel()  # it still waits here
            return [verdict.score for verdict in await asyncio.gather(*asking)]

    assert asyncio.run(story()) == [0.0, 1.0, 0.0, 0.0]


def test_where_no_worker_can_be_started_each_reply_is_unscored_and_none_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    question = sample("math", "7")
    started: list[socket.socket] = []
    pair = socket.socketpair

    def kept() -> tuple[socket.socket, socket.socket]:
        started.extend(made := pair())
        return made

    def full(_: object) -> None:
        raise BlockingIOError("no process left")

    async def story() -> None:
        async with Verifying(workers=2, timeout_s=60) as verifying:
            with monkeypatch.context() as patch:
                patch.setattr(SpawnProcess, "start", full)
                patch.setattr(socket, "socketpair", kept)
                asking = (verifying.verify(wrap(f"{n}"), question) for n in range(10))
                found = await asyncio.wait_for(asyncio.gather(*asking, return_exceptions=True), 20)
            assert {type(one) for one in found} == {ServiceError}
            assert "no worker can be started: no process left" in str(found[0])
            assert started
            assert {one.fileno() for one in started} == {-1}
            assert (await verifying.verify(wrap("7"), question)).score == 1.0

    asyncio.run(story())


def test_a_worker_that_cannot_be_started_leaves_its_replies_to_one_that_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    question = sample("math", "7")

    def full(_: object) -> None:
        raise BlockingIOError("no process left")

    async def story() -> list[float]:
        async with Verifying(workers=2, timeout_s=60) as verifying:
            await verifying.verify(wrap("7"), question)
            monkeypatch.setattr(_Worker, "start", full)
            asking = (verifying.verify(wrap(f"{n}"), question) for n in range(2, 9))
            return [verdict.score for verdict in await asyncio.gather(*asking)]

    assert asyncio.run(story()) == [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0]


def test_a_reply_that_takes_long_holds_up_no_other_while_a_worker_is_idle() -> None:
    question = sample("math", "7")

    async def story() -> tuple[list[float], float]:
        async with Verifying(workers=2, timeout_s=60) as verifying:
            await asyncio.gather(*(verifying.verify(wrap("7"), question) for _ in range(2)))
            slow = verifying._workers[0]._process
            assert slow is not None
            os.kill(slow.pid or 0, signal.SIGSTOP)
            first, *others = (
                asyncio.create_task(verifying.verify(wrap(f"{n}"), question)) for n in range(7, 20)
            )
            found = [verdict.score for verdict in await asyncio.wait_for(asyncio.gather(*others), 20)]
            assert not first.done()
            os.kill(slow.pid or 0, signal.SIGCONT)
            return found, (await first).score

    assert asyncio.run(story()) == ([0.0] * 12, 1.0)
