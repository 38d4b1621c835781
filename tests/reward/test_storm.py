"""Many clients, two services, one of them lost: the small form of `tests/bench/bench_service.py`."""

import asyncio
import os
import signal

import pytest

from tests.bench.bench_service import expected, mixed, storm, warm
from tests.reward.serving import serving
from tests.verifiers.cases import CASES


@pytest.mark.parametrize("apart", [False, True])
def test_with_a_server_killed_midway_every_answer_is_right_in_order_and_none_is_lost_or_zeroed(
    apart: bool,
) -> None:
    pairs = mixed(600)
    right = expected(pairs)
    assert {one.verifier for one, _ in pairs} == set(CASES)
    totals = [done.reward.total for done in right if done.reward is not None]
    assert None not in totals
    assert len(set(totals)) > 3
    with serving("--workers", "1") as first, serving("--workers", "1") as second:
        urls = [first.url, second.url]
        warm(urls)
        run = asyncio.run(storm(urls, pairs, clients=64, apart=apart, midway=first.process.kill))
        assert first.process.wait(timeout=10) == -signal.SIGKILL
        assert second.process.poll() is None
    assert run.scored == right


def test_a_server_that_hangs_midway_is_overtaken() -> None:
    pairs = mixed(300)
    with serving("--workers", "1") as first, serving("--workers", "1") as second:
        urls = [first.url, second.url]
        warm(urls)

        def hang() -> None:
            os.kill(first.process.pid, signal.SIGSTOP)

        run = asyncio.run(storm(urls, pairs, clients=16, midway=hang))
    assert run.scored == expected(pairs)
    assert run.seconds < 60
