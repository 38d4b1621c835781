import asyncio
import dataclasses
import os
import signal
import socket
import threading
import time
from multiprocessing import forkserver
from multiprocessing.context import ForkServerProcess

import pytest

from tests.conftest import HANGS
from tests.verifiers import short_limit
from tests.verifiers.cases import sample, wrap
from vtune.errors import DataError, ServiceError
from vtune.schema.message import Message, Picture
from vtune.schema.sample import Evidence, Sample
from vtune.verifiers import verifying as verifying_module
from vtune.verifiers import worker as worker_module
from vtune.verifiers.math import looks_slow
from vtune.verifiers.verifying import AHEAD, Verifying
from vtune.verifiers.worker import Worker


def allow(worker: Worker, seconds: float) -> None:
    """Change a worker's `timeout_s` and drop an alarm set with the old one."""
    worker._silence()
    worker._timeout_s = seconds


def test_workers_verify_many_replies_and_return_errors() -> None:
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


def test_the_loop_continues_while_the_fork_server_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its imports take most of a second, in which hundreds of conversations would stall."""
    turned = threading.Event()

    def slow() -> None:
        assert turned.wait(60), "the event loop waits for the fork server"

    monkeypatch.setattr(verifying_module, "ready_to_fork", slow)

    async def story() -> list[float]:
        async with Verifying(workers=1, timeout_s=60) as verifying:
            replies = [
                asyncio.create_task(verifying.verify(wrap("7"), sample("math", "7"))) for _ in range(2)
            ]
            await asyncio.sleep(0.01)
            turned.set()
            return [(await reply).score for reply in replies]

    assert asyncio.run(story()) == [1.0, 1.0]


def test_a_dead_or_hanging_worker_leaves_the_reply_unscored_and_is_replaced() -> None:
    question = sample("math", "7")

    async def story() -> None:
        async with Verifying(workers=1, timeout_s=60) as verifying:
            await verifying.verify(wrap("7"), question)
            (worker,) = verifying._fast.workers
            assert worker._process is not None
            os.kill(worker._process.pid or 0, signal.SIGKILL)
            with pytest.raises(ServiceError, match="died"):
                await verifying.verify(wrap("7"), question)
            slow = verifying._slow.workers[0]
            allow(worker, 0.0)
            allow(slow, 0.0)
            started = time.monotonic()
            with pytest.raises(ServiceError, match="no verdict"):
                await verifying.verify(wrap("7"), question)
            assert time.monotonic() - started < 30
            allow(worker, 60)
            allow(slow, 60)
            assert (await verifying.verify(wrap("7"), question)).score == 1.0

    asyncio.run(story())


def test_a_fork_server_that_dies_on_a_request_costs_no_reply() -> None:
    server = forkserver._forkserver  # type: ignore[attr-defined]

    async def story() -> None:
        async with Verifying(workers=1, timeout_s=60) as verifying:
            server.ensure_running()
            died = server._forkserver_pid
            os.kill(died, signal.SIGSTOP)
            threading.Timer(0.2, os.kill, (died, signal.SIGKILL)).start()
            assert (await verifying.verify(wrap("7"), sample("math", "7"))).score == 1.0
            assert server._forkserver_pid != died

    asyncio.run(story())


def test_a_fork_server_that_keeps_dying_leaves_the_reply_unscored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def dies(_: ForkServerProcess) -> None:
        raise EOFError

    async def story() -> None:
        async with Verifying(workers=2) as verifying:
            with monkeypatch.context() as patch:
                patch.setattr(ForkServerProcess, "start", dies)
                with pytest.raises(ServiceError, match="keeps dying"):
                    await verifying.verify(wrap("7"), sample("math", "7"))
            assert (await verifying.verify(wrap("7"), sample("math", "7"))).score == 1.0

    asyncio.run(story())


def test_a_verifier_that_needs_no_worker_starts_none() -> None:
    async def story() -> None:
        async with Verifying() as verifying:
            assert (await verifying.verify(wrap("b"), sample("choice", "B"))).score == 1.0
            assert all(worker._process is None for worker in verifying._fast.workers)

    asyncio.run(story())


def test_replies_that_share_a_worker_with_a_dying_or_hanging_one_are_still_verified() -> None:
    hard = sample("math", "7")

    async def story() -> None:
        async with Verifying(workers=1, timeout_s=60) as verifying:
            await verifying.verify(wrap("7"), hard)
            (worker,) = verifying._fast.workers
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


def test_a_reply_larger_than_the_pipe_does_not_block_the_loop() -> None:
    question = sample("math", "7")
    long = wrap("7").replace("<think>", "<think>" + "so " * 10**6)

    async def story() -> list[float]:
        async with Verifying(workers=1, timeout_s=60) as verifying:
            verifying.start()
            (worker,) = verifying._fast.workers
            assert worker._process is not None
            os.kill(worker._process.pid or 0, signal.SIGSTOP)
            asking = [
                asyncio.create_task(verifying.verify(reply, question)) for reply in (long, wrap("8"), long)
            ]
            await asyncio.sleep(0.05)  # a blocked loop would never return here
            os.kill(worker._process.pid or 0, signal.SIGCONT)
            return [verdict.score for verdict in await asyncio.gather(*asking)]

    assert asyncio.run(story()) == [1.0, 0.0, 1.0]


def test_a_cancelled_request_does_not_affect_the_other_verdicts() -> None:
    question = sample("math", "7")

    async def story() -> list[float]:
        async with Verifying(workers=1, timeout_s=60) as verifying:
            asking = [asyncio.create_task(verifying.verify(wrap(f"{n}"), question)) for n in range(5, 11)]
            await asyncio.sleep(0)
            asking.pop(0).cancel()  # already at the worker
            asking.pop(-1).cancel()  # still queued here
            return [verdict.score for verdict in await asyncio.gather(*asking)]

    assert asyncio.run(story()) == [0.0, 1.0, 0.0, 0.0]


def test_if_no_worker_can_start_every_reply_is_unscored_and_none_hangs(
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
                patch.setattr(ForkServerProcess, "start", full)
                patch.setattr(socket, "socketpair", kept)
                asking = (verifying.verify(wrap(f"{n}"), question) for n in range(10))
                found = await asyncio.wait_for(asyncio.gather(*asking, return_exceptions=True), 20)
            assert {type(one) for one in found} == {ServiceError}
            assert "no worker can be started: no process left" in str(found[0])
            assert started
            assert {one.fileno() for one in started} == {-1}
            assert (await verifying.verify(wrap("7"), question)).score == 1.0

    asyncio.run(story())


def test_replies_of_a_worker_that_cannot_start_go_to_a_running_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    question = sample("math", "7")

    def full(_: object) -> None:
        raise BlockingIOError("no process left")

    async def story() -> list[float]:
        async with Verifying(workers=2, timeout_s=60) as verifying:
            await verifying.verify(wrap("7"), question)
            monkeypatch.setattr(Worker, "start", full)
            asking = (verifying.verify(wrap(f"{n}"), question) for n in range(2, 9))
            return [verdict.score for verdict in await asyncio.gather(*asking)]

    assert asyncio.run(story()) == [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0]


def test_a_slow_reply_delays_no_other_while_a_worker_is_idle() -> None:
    question = sample("math", "7")

    async def story() -> tuple[list[float], float]:
        async with Verifying(workers=2, timeout_s=60) as verifying:
            await asyncio.gather(*(verifying.verify(wrap("7"), question) for _ in range(2)))
            slow = verifying._fast.workers[0]._process
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


def test_slow_replies_delay_no_others_and_get_the_same_verdict_as_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from vtune.verifiers import verifying as module

    monkeypatch.setattr(module, "SLOW_WAIT", HANGS)
    monkeypatch.setattr(worker_module, "_work", short_limit.work)
    question = sample("math", "7")
    # The first exceeds the limit; the others take up to a second each.
    long = [wrap(f"(x+y+z)^{{{power}}}") for power in (300, 30, 30)]

    async def story() -> tuple[list[float], list[float]]:
        async with Verifying(workers=1, timeout_s=HANGS) as verifying:
            verifying.start()
            await verifying.verify(wrap("x^2"), question)
            asking = [asyncio.create_task(verifying.verify(reply, question)) for reply in long]
            await asyncio.sleep(0)
            quick = [(await verifying.verify(wrap(f"{n}"), question)).score for n in range(5, 9)]
            assert not any(one.done() for one in asking)  # slow replies run one after another
            return quick, [one.score for one in await asyncio.gather(*asking)]

    quick, slow = asyncio.run(story())
    assert (quick, slow) == ([0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0])


def test_a_stuck_process_is_given_up_and_its_reply_verified_by_the_slow_workers() -> None:
    question = sample("math", "7")

    async def story() -> list[float]:
        async with Verifying(workers=1, timeout_s=60) as verifying:
            await verifying.verify(wrap("7"), question)
            (worker,) = verifying._fast.workers
            assert worker._fast is not None
            assert (
                worker._alarm is None
            )  # an alarm set at the start would only check for a hang a minute later
            worker._fast = dataclasses.replace(worker._fast, stuck_s=0.2)
            allow(worker, 3.0)
            assert worker._process is not None
            stopped = worker._process.pid
            os.kill(stopped or 0, signal.SIGSTOP)
            asking = [asyncio.create_task(verifying.verify(wrap(f"{n}"), question)) for n in (7, 8)]
            while worker._process is not None and worker._process.pid == stopped:
                await asyncio.sleep(0.05)
            worker._timeout_s = 60.0  # its replacement may start slowly on a busy machine
            found = [verdict.score for verdict in await asyncio.gather(*asking)]
            assert verifying._slow.workers[0]._process is not None
            return found

    assert asyncio.run(story()) == [1.0, 0.0]


def test_a_slow_reply_without_a_free_process_in_time_is_unscored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from vtune.verifiers import verifying as module

    monkeypatch.setattr(module, "SLOW_WAIT", 0.2)
    question = sample("math", "7")

    async def story() -> list[object]:
        async with Verifying(workers=1, timeout_s=60) as verifying:
            await verifying.verify(wrap("7"), question)
            asking = (verifying.verify(wrap("(x+y+z)^{30}"), question) for _ in range(2))
            return list(await asyncio.gather(*asking, return_exceptions=True))

    first, second = asyncio.run(story())
    assert getattr(first, "score", first) == 0.0
    assert isinstance(second, ServiceError)
    assert "take long" in second.what


def test_a_worker_that_waits_for_the_cpu_has_more_time_than_one_that_computes() -> None:
    """Its limit is four times `timeout_s` of wall-clock time."""
    question = sample("math", "7")

    async def story() -> float:
        async with Verifying(workers=1, timeout_s=60) as verifying:
            (slow,) = verifying._slow.workers
            assert (await verifying.verify(wrap("((((7))))"), question)).score == 1.0
            assert slow._process is not None
            allow(slow, 0.5)
            os.kill(slow._process.pid or 0, signal.SIGSTOP)
            began = time.monotonic()
            asking = asyncio.create_task(verifying.verify(wrap("((((7))))"), question))
            with pytest.raises(ServiceError, match="no verdict"):
                await asking
            waited = time.monotonic() - began
            allow(slow, 60)
            assert (await verifying.verify(wrap("((((7))))"), question)).score == 1.0
            allow(slow, 0.5)
            with pytest.raises(ServiceError, match="no verdict"):
                await verifying.verify(wrap("(x+y+z)^{300}"), question)
            return waited

    assert asyncio.run(story()) >= 2.0


@pytest.mark.parametrize(
    ("answer", "slow"),
    [
        ("7", False),
        ("\\frac{1}{2}", False),
        ("2^{100}", False),
        ("x^2+1", False),
        ("10^{-9}", False),
        ("\\{1, 2\\}", False),
        ("2\\sqrt{3}", False),
        ("(x+y+z)^{300}", True),
        ("\\int_0^1 x dx", True),
        ("\\sum_{i=1}^{9} i", True),
        ("((((7))))", True),
        ("1+" * 60 + "1", True),
        ("9^{9^{9^{9}}}", False),  # is refused, which takes no time
        ("(10^9)!", False),
    ],
)
def test_possibly_slow_replies_are_recognised_from_their_text(answer: str, slow: bool) -> None:
    assert looks_slow(wrap(answer), sample("math", "7")) is slow
    assert looks_slow(wrap("7"), sample("math", answer)) is slow


def test_a_reply_that_uses_up_its_time_slice_is_verified_again_with_the_same_verdict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from vtune.verifiers import verifying as module

    monkeypatch.setattr(module, "SLICE", 0.001)  # even a start takes more CPU time than this
    question = sample("math", "\\frac{1}{2}")

    async def story() -> tuple[list[float], bool]:
        async with Verifying(workers=1, timeout_s=60) as verifying:
            asking = (verifying.verify(wrap(answer), question) for answer in ("0.5", "0.4", "\\frac{2}{4}"))
            found = [verdict.score for verdict in await asyncio.gather(*asking)]
            return found, verifying._slow.workers[0]._process is not None

    assert asyncio.run(story()) == ([1.0, 0.0, 1.0], True)
