"""200 clients of one reward service for 30 seconds, half of them hostile: are the honest ones slowed down?

python -m tests.bench.bench_hostile_clients [--seconds 30]

Each client asks, waits for the answer, pauses for half a second on average, and asks again. The hostile half
sends towers of powers, huge factorials, expressions that no rule refuses but that take seconds, 62 MB of
`[[],[],…`, deep JSON, garbage, half requests, and silence. Honest clients run in one process and hostile ones
in another; honest clients are measured alone first, then together with the hostile ones, in one run.
"""

import argparse
import asyncio
import dataclasses
import itertools
import json
import multiprocessing
import multiprocessing.connection
import os
import random
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from tests.bench.bench_service import RECIPE, Pair, expected, mixed
from tests.reward.build import looks
from tests.reward.serving import serving
from tests.verifiers.cases import sample, wrap
from vtune.reward.connections import Connections
from vtune.reward.wire import item_of, settings_of
from vtune.schema.trajectory import Trajectory

HONEST = 100
HOSTILE = {"tower": 35, "slow": 10, "deep": 15, "large": 5, "garbage": 20, "half": 10, "silent": 5}
PAUSE = 0.5
PATIENCE = 60.0
MATHS = (
    ("\\frac{1}{2}", "0.5"),
    ("2\\sqrt{3}", "\\sqrt{12}"),
    ("2^{100}", "2^{100}"),
    ("x^2+1", "1+x^2"),
    ("10^{-9}", "0.000000001"),
    ("3^{27}", "3^{26}"),
    ("\\{1, 2\\}", "\\{2, 1\\}"),
    ("100!", "99!"),
)
TOWERS = (
    "9^{9^{9^{9}}}",
    "(10^9)!",
    "10^{10^{10}}",
    "\\binom{10^9}{5*10^8}",
    "(9!)!",
    "(" * 30 + "7" + ")" * 30,
)
SLOW = (
    "(x+y+z)^{300}",
    "\\sum_{i=1}^{1000000000} \\frac{1}{\\sqrt{i}}",
    "(x+1)^{1000}",
    "\\binom{100000}{50000}",
)


@dataclass
class Found:
    """What the honest clients measured."""

    took: list[float]
    wrong: int = 0
    lost: int = 0

    def told(self, name: str) -> str:
        took = sorted(self.took)
        p50, p99 = (took[len(took) * share // 100] * 1000 for share in (50, 99))
        return (
            f"{name}: {len(took)} answered, p50 {p50:.1f} ms, p99 {p99:.1f} ms, "
            f"max {took[-1] * 1000:.0f} ms, {self.wrong} wrong, {self.lost} lost"
        )

    def p99(self) -> float:
        return sorted(self.took)[len(self.took) * 99 // 100]


def honest_pairs() -> list[Pair]:
    """Replies for every verifier; every fourth is to a maths question that has to be parsed."""
    pairs = []
    for number, pair in enumerate(mixed(400)):
        if number % 4 == 0:
            answer, truth = MATHS[number // 4 % len(MATHS)]
            question = dataclasses.replace(sample("math", truth), id=f"maths/{number}")
            done = looks(reply=wrap(answer))
            pair = (
                question,
                Trajectory(sample_id=question.id, source=question.source, messages=done.messages[-1:]),
            )
        pairs.append(pair)
    return pairs


def body_of(pair: Pair) -> bytes:
    return json.dumps({"reward": settings_of(RECIPE), **item_of(*pair)}).encode()


async def honest(url: str, seconds: float, asked: Sequence[tuple[bytes, float | None]]) -> Found:
    """Send requests until the time is over; a request that takes longer than `PATIENCE` counts as lost."""
    found, http, ends = Found([]), Connections({}), time.monotonic() + seconds
    left = itertools.cycle(asked)

    async def client(number: int) -> None:
        rng = random.Random(number)
        await asyncio.sleep(rng.uniform(0, 2 * PAUSE))
        while time.monotonic() < ends:
            body, right = next(left)
            began = time.perf_counter()
            try:
                answer = await asyncio.wait_for(http.post(f"{url}/score", body), PATIENCE)
            except (OSError, TimeoutError):
                found.lost += 1
                continue
            found.took.append(time.perf_counter() - began)
            if answer.status != 200 or json.loads(answer.body)["reward"]["total"] != right:
                found.wrong += 1
            await asyncio.sleep(rng.uniform(0, 2 * PAUSE))

    await asyncio.gather(*(client(number) for number in range(HONEST)))
    await http.close()
    return found


def body_against(kind: str, rng: random.Random) -> bytes:
    """The request body of one kind of hostile client."""
    if kind in ("tower", "slow"):
        text = rng.choice(TOWERS if kind == "tower" else SLOW)
        question = sample("math", "7")
        done = Trajectory(
            sample_id=question.id, source=question.source, messages=looks(reply=wrap(text)).messages
        )
        return body_of((question, done))
    if kind == "deep":
        depth = rng.choice((100, 10_000, 1_000_000))
        return b'{"sample":' + b"[" * depth + b"]" * depth + b"}"
    if kind == "large":
        return b"[" + b"[]," * (62 * 2**20 // 3) + b"[]]"
    garbage = [
        rng.randbytes(1000),
        b"",
        b"null",
        b'{"items": [' + b"1," * 1000 + b"1]}",
        b'{"sample": {}, "reply": NaN}',
    ]
    return rng.choice([*garbage, b'{"reply": "' + b"\\ud800" * 1000 + b'", "sample": {"data_source": 3}}'])


async def hostile(url: str, ends: float) -> Counter[str]:
    """Send hostile requests; return the statuses of the answers by kind."""
    said: Counter[str] = Counter()
    place = urlsplit(url)

    async def client(kind: str, number: int) -> None:
        rng = random.Random(f"{kind}{number}")
        http, large = Connections({}), body_against("large", rng) if kind == "large" else b""
        await asyncio.sleep(rng.uniform(0, 2 * PAUSE))
        while (left := ends - time.time()) > 0:
            try:
                async with asyncio.timeout(left):
                    if kind in ("half", "silent"):
                        _, writer = await asyncio.open_connection(place.hostname, place.port)
                        if kind == "half":
                            writer.write(b"POST /score HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
                        await asyncio.sleep(rng.uniform(0, 10))
                        writer.close()
                        said[kind] += 1
                        continue
                    answer = await http.post(f"{url}/score", large or body_against(kind, rng))
                    said[f"{kind} {answer.status}"] += 1
                    await asyncio.sleep(rng.uniform(0, 2 * PAUSE))
            except TimeoutError:
                said[f"{kind} unanswered at the end"] += 1
            except OSError:
                said[f"{kind} hung up"] += 1
        await http.close()

    await asyncio.gather(*(client(kind, n) for kind, count in HOSTILE.items() for n in range(count)))
    return said


def attack(url: str, ends: float, pipe: multiprocessing.connection.Connection) -> None:
    pipe.send(asyncio.run(hostile(url, ends)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    seconds = parser.parse_args().seconds
    pairs = honest_pairs()
    rights = [done.reward.total if done.reward is not None else None for done in expected(pairs)]
    asked = [(body_of(pair), right) for pair, right in zip(pairs, rights, strict=True)]
    with serving("--workers", "2") as one:
        asyncio.run(honest(one.url, 10, asked))  # warm-up: every worker parses something
        print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        alone = asyncio.run(honest(one.url, seconds / 2, asked))
        print(alone.told(f"{HONEST} honest clients alone"), flush=True)
        ours, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        process = context.Process(target=attack, args=(one.url, time.time() + seconds + 3, theirs))
        process.start()
        time.sleep(3)  # wait until the hostile load is on
        both = asyncio.run(honest(one.url, seconds, asked))
        said = ours.recv()
        process.join()
        died = one.process.poll() is not None
    print(both.told(f"{HONEST} honest beside {sum(HOSTILE.values())} hostile clients"))
    print(f"ratio of p99 {both.p99() / alone.p99():.1f}; load average {os.getloadavg()[0]:.1f}")
    print("hostile clients:", ", ".join(f"{count} {kind}" for kind, count in sorted(HOSTILE.items())))
    print("their answers:", ", ".join(f"{what}: {count}" for what, count in sorted(said.items())))
    if both.wrong or both.lost or died or alone.wrong or alone.lost:
        raise SystemExit("an honest request was answered wrongly, or lost")
    if both.p99() >= 1:
        raise SystemExit("p99 of honest requests is not below one second")


if __name__ == "__main__":
    main()
