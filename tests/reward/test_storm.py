"""Many clients and two services, one of which dies: a small version of `tests/bench/bench_service.py`."""

import asyncio
import os
import signal

from tests.bench.bench_service import expected, mixed, storm, warm
from tests.reward.serving import serving
from tests.verifiers.cases import CASES


def test_with_a_server_hung_then_killed_all_answers_are_right_and_in_order() -> None:
    pairs = mixed(400)
    right = expected(pairs)
    assert {one.verifier for one, _ in pairs} == set(CASES)
    totals = [done.reward.total for done in right if done.reward is not None]
    assert None not in totals
    assert len(set(totals)) >= 3
    with serving("--workers", "1") as first, serving("--workers", "1") as second:
        urls = [first.url, second.url]
        warm(urls)

        def hang() -> None:
            os.kill(first.process.pid, signal.SIGSTOP)

        hung = asyncio.run(storm(urls, pairs[:200], clients=16, midway=hang))
        assert hung.scored == right[:200]
        assert hung.seconds < 60  # half of a request's time limit
        os.kill(first.process.pid, signal.SIGCONT)
        killed = asyncio.run(storm(urls, pairs, clients=64, midway=first.process.kill))
        assert killed.scored == right
        assert first.process.wait(timeout=60) == -signal.SIGKILL
        assert second.process.poll() is None
