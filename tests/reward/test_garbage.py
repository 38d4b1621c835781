"""A service answers any request with 4xx and a reason, and a client survives any answer."""

import asyncio
import copy
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import HANGS
from tests.reward.build import TARGET, looks, recipe, sample
from tests.verifiers.cases import sample_of, wrap
from vtune.errors import DataError, ServiceError
from vtune.reward.body import DEPTH, ELEMENTS, SMALL_BYTES, Bodies, Busy, parse_json
from vtune.reward.connections import Answer
from vtune.reward.servers import Refused, Unusable, _results
from vtune.reward.service import Service, app_of
from vtune.reward.wire import item_of, settings_of, with_scores
from vtune.schema.fields import Fields
from vtune.schema.message import Message
from vtune.schema.trajectory import Trajectory

Ask = Any

HUGE = "1" * 400
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.sampled_from([0, 1, -1, 10**308, 10**400, 1e308, -0.0, 5e-324]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    st.sampled_from(
        ["", "\x00", "\ud800", "<image>", "<answer>", "[1, 2", "{}", "7", HUGE, "é" * 9, "exact", "choice"]
    ),
)
JUNK = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """Posts to a service in this process; its workers never start, as no verifier here needs one."""
    with asyncio.Runner() as runner:
        service = Service(recipe(), workers=1)
        running = service.running()
        runner.run(running.__aenter__())
        transport = httpx2.ASGITransport(app_of(service, token=None, max_bytes=2**26))
        http = httpx2.AsyncClient(transport=transport, base_url="http://here")

        def post(path: str, body: bytes) -> httpx2.Response:
            return runner.run(http.post(path, content=body))

        yield post
        runner.run(http.aclose())
        runner.run(running.__aexit__(None, None, None))


def good() -> dict[str, Any]:
    """A request with a value for every key."""
    item = item_of(sample(TARGET), looks(TARGET))
    exact = sample_of("exact")
    item["sample"]["reward_model"] |= {"verifier": "exact", "verifier_parm": "{}"}
    plain = item_of(
        exact,
        Trajectory(sample_id=exact.id, source=exact.source, messages=(Message("assistant", wrap("x")),)),
    )
    return json.loads(json.dumps({"reward": settings_of(recipe()), "items": [item, plain]}))


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path to every value in a request."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, item in inner for found in places(item, (*path, key)))]


PLACES = places(good())


def put(request: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    place = request
    try:
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
    except (KeyError, IndexError, TypeError):
        pass  # an earlier mutation has replaced it
    return request


def refused_or_scored(answer: httpx2.Response) -> None:
    assert answer.status_code in (200, 422), answer.text
    said = answer.json()
    for one in said.get("results", [said]):
        status = one.get("status", answer.status_code)
        assert status in (200, 422), one
        assert status == 200 or (one["error"]["what"] and one.get("reward", {}) is not True)


def test_the_unmutated_request_is_scored(ask: Ask) -> None:
    answer = ask("/score", json.dumps(good()).encode())
    assert [one["status"] for one in answer.json()["results"]] == [200, 200]
    assert len(PLACES) > 80


@settings(max_examples=400, suppress_health_check=list(HealthCheck), deadline=None)
@given(changes=st.lists(st.tuples(st.sampled_from(PLACES), JUNK), min_size=1, max_size=3))
def test_a_request_with_any_value_anywhere_is_scored_or_refused_with_a_reason(
    ask: Ask, changes: list[tuple[tuple[Any, ...], Any]]
) -> None:
    request = good()
    for path, value in changes:
        request = put(request, path, copy.deepcopy(value))
    refused_or_scored(ask("/score", json.dumps(request).encode()))


@settings(max_examples=100, suppress_health_check=list(HealthCheck), deadline=None)
@given(body=st.binary(max_size=60) | JUNK.map(lambda junk: json.dumps(junk).encode()))
def test_any_bytes_are_refused_with_a_reason(ask: Ask, body: bytes) -> None:
    for path in ("/score", "/judge"):
        answer = ask(path, body)
        assert answer.status_code == 422, answer.text
        assert answer.json()["error"]["what"]


JUDGED = {
    "response": wrap("7"), "prompt": "?", "answer": "7", "solution": "7", "data_source": "x",
    "reward_verifier": "exact",
    "reward_verifier_parm": "{}", "format_ratio": 0.1, "accuracy_ratio": 1.0,
}  # fmt: skip


@settings(max_examples=100, suppress_health_check=list(HealthCheck), deadline=None)
@given(key=st.sampled_from(sorted(JUDGED)), value=JUNK | JUNK.map(json.dumps))
def test_a_request_to_judge_with_any_value_is_judged_or_refused(ask: Ask, key: str, value: Any) -> None:
    assert ask("/judge", json.dumps(JUDGED).encode()).status_code == 200
    answer = ask("/judge", json.dumps(JUDGED | {key: value}).encode())
    assert answer.status_code in (200, 422), answer.text


DEEP = "[" * 10**5 + "]" * 10**5


@pytest.mark.parametrize(
    ("body", "why"),
    [
        pytest.param("[" * 10**5, "levels of lists", id="deep"),
        pytest.param('{"a":' * 10**5 + "1" + "}" * 10**5, "levels of lists", id="deep objects"),
        pytest.param(
            f'["]", {"[" * 99}{"]" * 99}]',
            "levels of lists",
            id="deep behind a bracket in a string",
        ),
        pytest.param(
            '["\\\\", ' + "[" * 99 + "]" * 99 + "]",
            "levels of lists",
            id="deep behind a backslash",
        ),
        pytest.param("[" + "[]," * 10**6 + "[]]", "values", id="wide"),
        pytest.param("[" + "[]," * 10**7, "values", id="wider than is received"),
        pytest.param("[" + '"",' * 10**6 + "1]", "values", id="wide, of texts"),
        pytest.param('{"items": NaN}', "NaN", id="NaN"),
        pytest.param('{"items": -Infinity}', "Infinity", id="minus infinity"),
        pytest.param('{"items": [], "items": []}', "twice", id="a key twice"),
        pytest.param('{"items": ' + "1" * 5000 + "}", "not JSON", id="a number of 5000 digits"),
        pytest.param(b'{"items": "\xed\xa0\x80"}', "not JSON", id="half a character in UTF-8"),
        pytest.param('{"items": []}'.encode("utf-16"), "not JSON", id="UTF-16"),
        pytest.param("", "not JSON", id="nothing"),
    ],
)
def test_json_that_cannot_be_intended_is_refused_with_the_reason(
    ask: Ask, body: str | bytes, why: str
) -> None:
    for path in ("/score", "/judge"):
        answer = ask(path, body.encode() if isinstance(body, str) else body)
        assert answer.status_code == 422
        assert why in answer.json()["error"]["what"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        pytest.param(
            "{" + "".join(f'"{n}":0,' for n in range(30_000)) + '"a":0,"a":0}', "'a' twice", id="twice"
        ),
        pytest.param("[]" * 99 + "]" * 2**26, "not JSON", id="closed without end"),
    ],
)
def test_a_refused_request_takes_hardly_any_time(body: str, why: str) -> None:
    content = body.encode()
    began = time.process_time()
    with pytest.raises(DataError, match=why):
        parse_json(content)
    assert time.process_time() - began < 2


@pytest.mark.parametrize("parm", [DEEP, '{"iou": ' + DEEP + "}", json.loads("[" * 40 + "]" * 40), 7, [1]])
def test_a_deep_verifier_parm_is_422(ask: Ask, parm: Any) -> None:
    request = good()
    request["items"][1]["sample"]["reward_model"]["verifier_parm"] = parm
    answer = ask("/score", json.dumps(request).encode())
    assert [one["status"] for one in answer.json()["results"]] == [200, 422]
    judged = ask("/judge", json.dumps(JUDGED | {"reward_verifier_parm": json.dumps(parm)}).encode())
    assert judged.status_code == 422


def test_limits_do_not_affect_honest_requests() -> None:
    many = b"[" + b"[]," * (ELEMENTS // 2 - 2) + b"[]]"
    assert len(parse_json(many)) == ELEMENTS // 2 - 1
    deep = b"[" * DEPTH + b"]" * DEPTH
    assert parse_json(deep) is not None
    text = json.dumps(['],[{"\\' * 10**6]).encode()
    assert parse_json(text) == ['],[{"\\' * 10**6]


def test_a_large_request_is_parsed_in_a_thread_with_the_same_result() -> None:
    large = json.dumps({"reply": "x" * SMALL_BYTES}).encode()
    threads = []

    def read(value: Any) -> Any:
        threads.append(threading.current_thread() is threading.main_thread())
        return value

    async def story() -> tuple[Any, Any]:
        bodies = Bodies()
        return await bodies.parse(b'{"reply": "x"}', read), await bodies.parse(large, read)

    assert asyncio.run(story()) == ({"reply": "x"}, {"reply": "x" * SMALL_BYTES})
    assert threads == [True, False]


def test_requests_beyond_capacity_are_refused_and_release_their_space() -> None:
    async def receive() -> Any:
        await asyncio.sleep(0)
        return {"type": "http.request", "body": b"x" * 60, "more_body": False}

    async def story() -> int:
        bodies = Bodies(held=100)
        started, go = asyncio.Event(), asyncio.Event()

        async def answer(body: bytes) -> int:
            started.set()
            await go.wait()
            return len(body)

        first = asyncio.create_task(bodies.read(receive, answer))
        await started.wait()
        with pytest.raises(Busy):
            await bodies.read(receive, answer)
        go.set()
        return (await first or 0) + (await bodies.read(receive, answer) or 0)

    assert asyncio.run(story()) == 120


def test_a_client_that_hangs_up_cancels_its_answer() -> None:
    messages = [{"type": "http.request", "body": b"x", "more_body": False}, {"type": "http.disconnect"}]
    ended = []

    async def receive() -> Any:
        return messages.pop(0)

    async def endless(body: bytes) -> int:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(body)
        return 0

    async def overdue(_: bytes) -> int:
        raise TimeoutError

    async def story() -> None:
        assert await asyncio.wait_for(Bodies().read(receive, endless), HANGS) is None
        messages.append({"type": "http.request", "body": b"y", "more_body": False})
        with pytest.raises(TimeoutError):  # of the answer itself
            await Bodies().read(receive, overdue)

    asyncio.run(story())
    assert ended == [b"x"]


RESULT = {
    "status": 200, "error": None, "tool_scores": [0.5], "flags": [["seen"]],
    "reward": {"total": 1.0, "accuracy": 1.0, "format": 0.0, "tool": 0.0, "why": "", "parts": {"iou": 0.5}},
}  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(path=st.sampled_from(places(RESULT)), value=JUNK | st.sampled_from([float("nan"), float("inf")]))
def test_scores_of_any_shape_are_scores_or_an_error_of_the_service(path: tuple[Any, ...], value: Any) -> None:
    result = put(copy.deepcopy(RESULT), path, value)
    done = looks(TARGET)
    try:
        (one,) = _results(Answer(200, json.dumps({"results": [result]}).encode()), 1)
        if one["reward"] is None:
            assert isinstance(one["error"]["what"], str)
            return
        reward = with_scores(done, one).reward
    except (Unusable, ServiceError):
        return
    assert reward is not None
    assert all(number is None or abs(number) < float("inf") for number in (reward.total, reward.accuracy))


@settings(max_examples=100, deadline=None)
@given(status=st.sampled_from([200, 422, 500, 503]), body=st.binary(max_size=40) | st.just(DEEP.encode()))
def test_an_answer_of_arbitrary_bytes_is_unusable_or_a_refusal(status: int, body: bytes) -> None:
    with pytest.raises((Unusable, Refused)):
        _results(Answer(status, body), 1)


def test_a_number_outside_the_float_range_is_reported() -> None:
    with pytest.raises(DataError, match="too large for a float"):
        Fields({"seconds": 10**400}).number("seconds", 0.0)
