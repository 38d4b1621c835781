"""Two reward services under 64 clients, one of them killed midway: is every answer right, and how fast?

python -m pytest tests/bench/bench_service.py -s -o python_files='bench_*.py'
"""

import asyncio
import dataclasses
import gc
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

import pytest

from tests.reward.build import TARGET, WRONG, looks, recipe, sample
from tests.reward.serving import serving
from tests.verifiers.cases import CASES, sample_of, wrap
from vtune.reward.client import RewardClient
from vtune.reward.recipe import RewardService
from vtune.reward.score import Scorer
from vtune.reward.wire import settings_of
from vtune.schema.message import Message
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory

CLIENTS = 64
REQUESTS = 10_000
ONE_BY_ONE = 1_000
RECIPE = recipe(tool_gated=True)

Pair = tuple[Sample, Trajectory]


@dataclass
class Run:
    scored: list[Trajectory]
    seconds: float
    took: list[float]
    """Seconds per request, sorted."""

    @property
    def rate(self) -> float:
        return len(self.scored) / self.seconds

    def told(self, name: str) -> str:
        p50, p99 = (self.took[len(self.took) * share // 100] * 1000 for share in (50, 99))
        worst = self.took[-1] * 1000
        return f"{name}: {self.rate:.0f} requests/s, p50 {p50:.1f} ms, p99 {p99:.1f} ms, max {worst:.0f} ms"


def mixed(count: int) -> list[Pair]:
    """Right and wrong replies for every verifier, some with calls and pictures; no two are the same."""
    pairs = []
    names = sorted(CASES)
    for number in range(count):
        name = names[number % len(names)]
        case = CASES[name]
        right = (
            number // len(names) % 2 or name == "judge"
        )  # without a judge, only the exact truth is certain
        question, done = sample_of(name), looks(reply=wrap(case.gold if right else case.wrong))
        if name == "math":
            answer = number if number % 4 < 2 else number + 1
            question, done = (
                dataclasses.replace(question, ground_truth=str(number)),
                looks(reply=wrap(f"{answer}")),
            )
        elif number % 20 == 0:
            question, done = sample(TARGET), looks(TARGET, reply=WRONG) if number % 3 else looks(TARGET)
        last = done.messages[-1].content.replace("<think>", f"<think>Number {number}. ", 1)
        turns = (*done.messages[:-1], Message("assistant", last))
        question = dataclasses.replace(question, id=f"storm/{number}")
        pairs.append((question, dataclasses.replace(done, sample_id=question.id, messages=turns)))
    return pairs


def expected(pairs: Sequence[Pair]) -> list[Trajectory]:
    async def story() -> list[Trajectory]:
        async with Scorer(RECIPE) as scorer:
            found = await scorer.score([one for one, _ in pairs], [done for _, done in pairs])
            return [replace(one, needs_look=None) for one in found]  # set by the run, not by a service

    return asyncio.run(story())


async def storm(
    urls: Sequence[str],
    pairs: Sequence[Pair],
    *,
    clients: int,
    apart: bool = False,
    midway: Callable[[], None] = lambda: None,
) -> Run:
    """Score everything with many clients, each sending one request after another; run `midway` at half time.

    Args:
        urls: The URLs of the services.
        pairs: What to score.
        clients: Number of concurrent clients.
        apart: Whether each client has separate connections, as in a separate process; else they share
            connections, as the trajectories of a training process do.
        midway: Called once, when half of the requests are done.
    """
    service, settings = RewardService(urls=tuple(urls)), settings_of(RECIPE)
    found: dict[int, Trajectory] = {}
    took: list[float] = []
    left = iter(range(len(pairs)))

    async def ask(score: Callable[[Sample, Trajectory], Awaitable[Trajectory]]) -> None:
        for number in left:
            began = time.perf_counter()
            found[number] = await score(*pairs[number])
            took.append(time.perf_counter() - began)
            if len(found) == len(pairs) // 2:
                midway()

    async with AsyncExitStack() as stack:
        made = [
            await stack.enter_async_context(RewardClient(service, settings))
            for _ in range(clients if apart else 1)
        ]
        began = time.perf_counter()
        await asyncio.gather(*(ask(made[number % len(made)].score) for number in range(clients)))
        seconds = time.perf_counter() - began
    return Run([found[number] for number in range(len(pairs))], seconds, sorted(took))


def warm(urls: Sequence[str]) -> None:
    """Wait until every worker has verified something."""
    asyncio.run(storm(urls, mixed(40 * len(urls)), clients=16))


@pytest.mark.parametrize("apart", [False, True], ids=["one process of 64", "64 apart"])
def test_ten_thousand_requests_with_a_server_killed(apart: bool) -> None:
    pairs = mixed(REQUESTS)
    right = expected(pairs)
    with serving() as first, serving() as second:
        urls = [first.url, second.url]
        warm(urls)
        gc.collect()
        gc.freeze()  # keep the benchmark's samples and expected scores out of garbage collection
        alone = asyncio.run(storm(urls, pairs[:ONE_BY_ONE], clients=1))
        whole = asyncio.run(storm(urls, pairs, clients=CLIENTS, apart=apart, midway=first.process.kill))
    who = f"{CLIENTS} clients that share {'nothing' if apart else 'connections'}, one of two servers killed"
    print(f"\n{alone.told('one at a time')}\n{whole.told(who)}")
    print(f"ratio {whole.rate / alone.rate:.1f}")
    assert alone.scored == right[:ONE_BY_ONE]
    assert whole.scored == right
    # With separate connections, two cores give a factor of two; the rest comes from overlapping waits, if the
    # machine is otherwise idle.
    assert whole.rate >= (2 if apart else 3) * alone.rate
