"""The client against minimal fake servers; `test_service.py` has real ones."""

import asyncio
import dataclasses
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from tests.reward.build import TARGET, looks, recipe, sample
from vtune.errors import RecipeError, RunFailed
from vtune.reward import servers as module
from vtune.reward.checking import silent_line
from vtune.reward.client import ATTEMPTS, ITEMS, RewardClient
from vtune.reward.connections import Answer, Connections
from vtune.reward.recipe import RewardService
from vtune.reward.wire import settings_of
from vtune.schema.message import Message
from vtune.schema.trajectory import Trajectory

Items = list[dict[str, Any]]
Server = Callable[[Items], Awaitable[Answer]]


def result(item: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """A score that identifies its reply."""
    reply = item["trajectory"]["messages"][-1]["content"]
    calls = item["trajectory"]["calls"]
    reward = {"total": 1.0, "accuracy": 1.0, "format": 0.0, "tool": 0.0, "why": f"read {reply}"}
    scores = {"reward": reward, "tool_scores": [0.5] * len(calls), "flags": [["seen"]] * len(calls)}
    return {"status": 200, "error": None} | scores | changes


def said(status: int, what: Any) -> Answer:
    return Answer(status, json.dumps(what).encode())


def answer(items: Items) -> Answer:
    return said(200, {"results": [result(item) for item in items]})


async def good(items: Items) -> Answer:
    return answer(items)


async def failing(_: Items) -> Answer:
    return Answer(503, b"busy")


async def dead(_: Items) -> Answer:
    raise ConnectionError("ClientConnectorError: connection refused")


async def silent(_: Items) -> Answer:
    await asyncio.sleep(60)
    raise AssertionError("nobody waits that long")


class Net:
    """Fake servers by host name, and the requests that they received."""

    def __init__(self, **servers: Server) -> None:
        self.servers = servers
        self.asked: Counter[str] = Counter()
        self.sizes: list[int] = []

    async def post(self, url: str, body: bytes) -> Answer:
        name = url.removeprefix("http://").removesuffix("/score")
        request = json.loads(body)
        assert request["reward"] == json.loads(json.dumps(settings_of(recipe())))
        self.asked[name] += 1
        self.sizes.append(len(request["items"]))
        return await self.servers[name](request["items"])

    async def close(self) -> None:
        """Does nothing: nothing is open."""


def turn(reply: str) -> Trajectory:
    return Trajectory(sample_id="quiz/1", source="quiz", messages=(Message("assistant", reply),))


def run(net: Net, replies: int = 1, *, deadline_s: float = 30.0, rounds: int = 1) -> list[Trajectory]:
    """Have this many replies scored concurrently, in several consecutive rounds."""
    service = RewardService(urls=tuple(f"http://{name}" for name in net.servers), deadline_s=deadline_s)

    async def story() -> list[Trajectory]:
        async with RewardClient(service, settings_of(recipe())) as client:
            assert client._servers._http is not None
            await client._servers._http.close()
            client._servers._http = net
            found: list[Trajectory] = []
            for _ in range(rounds):
                waiting = [client.score(sample(), turn(str(number))) for number in range(replies)]
                found += await asyncio.gather(*waiting)
            return found

    return asyncio.run(story())


def whys(scored: list[Trajectory]) -> list[str]:
    return [trajectory.reward.why for trajectory in scored if trajectory.reward is not None]


def test_every_trajectory_gets_its_own_scores_in_order() -> None:
    net = Net(a=good, b=good)
    assert whys(run(net, 300)) == [f"read {number}" for number in range(300)]
    assert sum(net.sizes) == 300
    assert max(net.sizes) == ITEMS
    assert set(net.asked) == {"a", "b"}


def test_scores_and_flags_of_calls_are_returned() -> None:
    net = Net(a=good)
    service = RewardService(urls=("http://a",))

    async def story() -> Trajectory:
        async with RewardClient(service, settings_of(recipe())) as client:
            assert client._servers._http is not None
            await client._servers._http.close()
            client._servers._http = net
            return await client.score(sample(TARGET), looks(TARGET, TARGET))

    scored = asyncio.run(story())
    assert scored.tool_scores == (0.5, 0.5)
    assert [call.flags for call in scored.calls] == [("seen",), ("seen",)]
    assert scored.images == looks(TARGET, TARGET).images


def test_the_service_whose_judge_gave_no_reply_is_named() -> None:
    async def half(items: Items) -> Answer:
        nothing = {"total": None, "accuracy": None, "format": 0.0, "tool": None, "why": "the judge (at J)"}
        found = [result(item) for item in items]
        for one in found:
            if one["reward"]["why"] == "read 1":
                one |= {"status": 500, "silent": True, "error": {"what": "the judge"}, "reward": nothing}
        return said(200, {"results": found})

    service = RewardService(urls=("http://a",))

    async def story() -> RewardClient:
        async with RewardClient(service, settings_of(recipe())) as client:
            assert client._servers._http is not None
            await client._servers._http.close()
            client._servers._http = Net(a=half)
            replies = [dataclasses.replace(turn(str(number)), rollout=number) for number in range(3)]
            await asyncio.gather(*(client.score(sample(), reply) for reply in replies))
            return client

    silent = asyncio.run(story()).silent
    assert silent == {("quiz/1", 1): "the judge (at J)"}
    line = silent_line([[], [("quiz/1", "the judge (at J)")]], 3)
    assert line == "1 of 3 trajectories are unscored, quiz/1 the first of them: the judge (at J)"
    assert silent_line([[], []], 3) is None


@pytest.mark.parametrize("other", [failing, dead], ids=["503", "refused"])
def test_a_failing_server_costs_only_time_and_is_soon_avoided(other: Server) -> None:
    net = Net(a=other, b=good)
    scored = run(net, 20, rounds=30)
    assert whys(scored) == [f"read {number}" for number in range(20)] * 30
    assert net.asked["a"] < 20 < net.asked["b"]


def test_a_recovered_server_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vtune.reward.breaker.FIRST_PAUSE", 0.05)
    ends = time.monotonic() + 0.3

    async def late(items: Items) -> Answer:
        return answer(items) if time.monotonic() > ends else await dead(items)

    net = Net(a=late)
    assert whys(run(net, 3)) == ["read 0", "read 1", "read 2"]


def test_without_an_answer_by_the_deadline_a_reply_is_unscored_with_all_reasons() -> None:
    began = time.monotonic()
    (scored,) = run(Net(a=dead, b=failing), deadline_s=0.5)
    assert 0.4 < time.monotonic() - began < 30
    assert scored.reward is not None
    assert scored.reward.total is scored.reward.accuracy is scored.reward.format is scored.reward.tool is None
    assert "http://a: ClientConnectorError: connection refused" in scored.reward.why
    assert "http://b: HTTP 503: busy" in scored.reward.why


def test_an_outage_costs_one_deadline_not_one_per_reply() -> None:
    net = Net(a=dead)
    began = time.monotonic()
    scored = run(net, 50, deadline_s=2.0, rounds=5)
    assert time.monotonic() - began < 8
    assert all(one.reward is not None and one.reward.total is None for one in scored)


def test_a_silent_server_is_overtaken_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.01)
    net = Net(a=silent, b=good)
    began = time.monotonic()
    scored = run(net, 8, rounds=20)
    assert whys(scored) == [str(f"read {number}") for number in range(8)] * 20
    assert time.monotonic() - began < 60
    assert net.asked["a"] < 20


def test_a_single_silent_server_ends_in_the_deadline() -> None:
    (scored,) = run(Net(a=silent), deadline_s=0.3)
    assert "TimeoutError" in whys([scored])[0]


@pytest.mark.parametrize("status", [401, 404, 422])
def test_a_refused_reply_is_unscored_at_once_with_the_reason(status: int) -> None:
    async def refusing(_: Items) -> Answer:
        return said(status, {"error": {"what": "wrong or no token"}})

    net = Net(a=refusing)
    (scored,) = run(net)
    assert whys([scored]) == [f"the reward service refuses: HTTP {status}: wrong or no token"]
    assert net.asked["a"] == 1


def test_a_request_too_large_is_split_until_it_fits() -> None:
    async def small(items: Items) -> Answer:
        big = any(item["trajectory"]["messages"][-1]["content"] == "7" for item in items)
        return answer(items) if len(items) <= 2 and not big else Answer(413, b"too large")

    scored = run(Net(a=small), 20)
    expected = [f"read {number}" for number in range(20)]
    expected[7] = "the reward service takes no request that large: HTTP 413: too large"
    assert whys(scored) == expected


def test_a_reply_whose_worker_died_is_retried_and_then_unscored() -> None:
    seen: Counter[str] = Counter()

    async def crashing(items: Items) -> Answer:
        results = []
        for item in items:
            reply = item["trajectory"]["messages"][-1]["content"]
            seen[reply] += 1
            nothing = {"total": None, "accuracy": None, "format": 1.0, "tool": 0.0, "why": "worker died"}
            broken = result(item, status=500, reward=nothing, error={"what": "worker died"})
            heals = reply == "1" and seen[reply] == 2
            results.append(broken if reply in "01" and not heals else result(item))
        return said(200, {"results": results})

    scored = run(Net(a=crashing), 3)
    assert whys(scored) == ["worker died", "read 1", "read 2"]
    assert scored[0].reward is not None
    assert (scored[0].reward.total, scored[0].reward.format) == (None, 1.0)
    assert seen == {"0": ATTEMPTS, "1": 2, "2": 1}


def test_a_users_part_that_fails_in_the_service_ends_the_run_with_its_line() -> None:
    asked = []

    async def broken(items: Items) -> Answer:
        asked.append(len(items))
        error = {"what": "verifier `mine` of mine.py is broken: KeyError: 'x'", "where": "/m/mine.py:7"}
        return said(200, {"results": [{"status": 500, "reward": None, "error": error, "broken": True}]})

    with pytest.raises(RunFailed, match=r"`mine` of mine\.py is broken(.|\n)*mine\.py:7 of the reward"):
        run(Net(a=broken))
    assert asked == [1]


def test_a_refused_item_is_unscored_with_its_reason() -> None:
    async def strict(items: Items) -> Answer:
        error = {"what": "unknown verifier"}
        return said(200, {"results": [{"status": 422, "reward": None, "error": error} for _ in items]})

    assert whys(run(Net(a=strict))) == ["unknown verifier"]


@pytest.mark.parametrize(
    "words", ["null", "{}", '{"results": []}', '{"results": [1]}', "hello", '{"results": [{}]}']
)
def test_an_answer_without_results_counts_as_a_server_failure(words: str) -> None:
    async def odd(_: Items) -> Answer:
        return Answer(200, words.encode())

    assert whys(run(Net(a=odd, b=good))) == ["read 0"]


def test_the_token_is_required_and_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    service = RewardService(urls=("http://a",), token_env="MY_TOKEN")

    async def story() -> str:
        async with RewardClient(service, {}) as client:
            assert isinstance(client._servers._http, Connections)
            return client._servers._http._session.headers["Authorization"]

    monkeypatch.delenv("MY_TOKEN", raising=False)
    with pytest.raises(RecipeError, match="MY_TOKEN"):
        asyncio.run(story())
    monkeypatch.setenv("MY_TOKEN", "open-sesame")
    assert asyncio.run(story()) == "Bearer open-sesame"
    for wrong in ("open-sesame\n", "open\r\nX-Other: sesame", "open sesame", "ouvre-toi-sésame", ""):
        monkeypatch.setenv("MY_TOKEN", wrong)
        with pytest.raises(RecipeError, match="MY_TOKEN") as found:
            asyncio.run(story())
        assert not wrong or wrong not in f"{found.value} {found.value.fix}"


def test_a_cancelled_caller_does_not_affect_the_others() -> None:
    async def slow(items: Items) -> Answer:
        await asyncio.sleep(0.1)
        return answer(items)

    async def story() -> list[Any]:
        service = RewardService(urls=("http://a",))
        async with RewardClient(service, settings_of(recipe())) as client:
            assert client._servers._http is not None
            await client._servers._http.close()
            client._servers._http = Net(a=slow)
            tasks = [asyncio.create_task(client.score(sample(), turn(str(n)))) for n in range(4)]
            await asyncio.sleep(0.02)
            tasks[1].cancel()
            return await asyncio.gather(*tasks, return_exceptions=True)

    found = asyncio.run(story())
    assert isinstance(found.pop(1), asyncio.CancelledError)
    assert whys(found) == ["read 0", "read 2", "read 3"]


def test_a_late_retry_takes_no_time_from_the_others() -> None:
    """Its first answer is a failure that arrives shortly before its own deadline."""
    tries: Counter[str] = Counter()

    async def slow_to_fail(items: Items) -> Answer:
        found = []
        for item in items:
            reply = item["trajectory"]["messages"][-1]["content"]
            tries[reply] += 1
            failed = {"status": 500, "reward": None, "error": {"what": "a worker died"}}
            found.append(failed if reply == "0" and tries[reply] == 1 else result(item))
        if tries["0"] == 1:
            await asyncio.sleep(2.1)
        return said(200, {"results": found})

    net = Net(a=slow_to_fail)
    scored = run(net, 1, deadline_s=2.0, rounds=2)
    assert "in time" in whys(scored)[0] or "no reward service" in whys(scored)[0]
    assert whys(scored)[1] == "read 0"
