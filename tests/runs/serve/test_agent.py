"""An agent as a chat endpoint, in a separate process: what clients get, what is refused, what is freed."""

import asyncio
import base64
import json
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import openai
import pytest

from tests import served
from tests.conftest import HANGS
from tests.judge.server import FakeJudge, serve
from tests.models.rows import picture
from tests.rollout.endpoint import Looker
from tests.runs.commands import evaluation, setting, vtune
from vtune.errors import DataError, VtuneError
from vtune.models.pictures import PixelBudget
from vtune.rollout.agent import Job
from vtune.runs.serve.agent import AgentService, error_body, read_agent, status_of
from vtune.runs.serve.chat import completion_of, read_request
from vtune.schema.message import IMAGE
from vtune.schema.parquet import read_samples, read_trajectories
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Call, Trajectory
from vtune.verifiers.tags import answer

GREEDY = setting(rollout__temperature="0.0", threads=1)
BUDGET = PixelBudget(min_pixels=3136, max_pixels=12544)
"""The pixel budget of the suite `lens`."""


class Serving(served.Served):
    def health(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.url}/health", timeout=HANGS) as response:
            found: dict[str, Any] = json.load(response)
        return found

    def until(self, fine: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until /health reports this, and return its answer."""
        end = time.monotonic() + HANGS
        while not fine(found := self.health()):
            assert time.monotonic() < end, found
            time.sleep(0.02)
        return found

    def client(self, **options: Any) -> openai.AsyncOpenAI:
        return openai.AsyncOpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, **options)


@contextmanager
def serving(folder: Path, model: str, *options: str) -> Iterator[Serving]:
    words = ["--agent", "lens-tiny", "--model", model, "--out", str(folder / "out")]
    with served.serving("agent", *words, *GREEDY, *setting(offers="[python]"), *options) as one:
        yield Serving(one.process, one.facts)


def messages(sample: Sample) -> list[Any]:
    """A sample as sent by a client."""
    pictures = iter(sample.images)
    turns: list[dict[str, Any]] = []
    for message in sample.prompt:
        first, *rest = message.content.split(IMAGE)
        parts: list[dict[str, Any]] = [{"type": "text", "text": first}] if first else []
        for piece in rest:
            data = base64.b64encode(next(pictures).data or b"").decode()
            parts.append({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}})
            parts += [{"type": "text", "text": piece}] if piece else []
        turns.append({"role": message.role, "content": parts})
    return turns


def test_16_concurrent_clients_get_the_same_as_an_evaluation(
    schooled: Path, lens: Path, tmp_path: Path
) -> None:
    data = lens / "train.parquet"
    samples = list(read_samples(data))
    assert len(samples) == 16
    ended = vtune(*evaluation(schooled, data, tmp_path / "eval", *GREEDY))
    assert ended.code == 0, ended.err
    drawn = list(read_trajectories(tmp_path / "eval/trajectories.parquet"))
    expected = [[m.content for m in t.messages if m.role == "assistant"] for t in drawn]
    assert sum(len(t.calls) for t in drawn) > 4  # tools are called
    assert len({turns[-1] for turns in expected}) > 1

    async def story(served: Serving) -> list[Any]:
        async with served.client() as client:
            asking = [
                client.chat.completions.create(model="agent", messages=messages(sample)) for sample in samples
            ]
            return list(await asyncio.gather(*asking))

    with serving(tmp_path, str(schooled)) as served:
        replies = asyncio.run(story(served))
        assert [reply.choices[0].message.content for reply in replies] == [turns[-1] for turns in expected]
        told = [reply.model_extra["vtune"] for reply in replies]
        said = [[t["content"] for t in one["turns"] if t["role"] == "assistant"] for one in told]
        assert said == expected
        assert [len(one["calls"]) for one in told] == [len(t.calls) for t in drawn]
        assert [one["trajectory"]["answer"] for one in told] == [t.answer for t in drawn]
        assert [reply.usage.completion_tokens for reply in replies] == [sum(t.loss_mask) for t in drawn]
        assert [reply.usage.total_tokens for reply in replies] == [len(t.token_ids) for t in drawn]
        assert served.until(lambda found: found["sessions"] == 0)["running"] == 0
        served.process.send_signal(signal.SIGINT)
        assert served.process.wait(timeout=HANGS) == 0


class Slow:
    """A looker that takes its time for the second turn, until released."""

    def __init__(self, looker: Looker) -> None:
        self.looker = looker
        self.seconds = 0.0

    def __call__(self, body: dict[str, Any]) -> str:
        if any(message["role"] == "assistant" for message in body["messages"]):
            time.sleep(self.seconds)
        return self.looker(body)


@dataclass
class Endpoint:
    slow: Slow
    model: FakeJudge
    served: Serving
    samples: list[Sample]


@pytest.fixture(scope="module")
def endpoint(lens: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """A service whose policy is a model behind an endpoint; only its answers are returned."""
    samples = list(read_samples(lens / "heldout.parquet"))
    slow = Slow(Looker(samples, BUDGET))
    options = setting(openai__api_key_env="null", rollout__max_new_tokens=90, rollout__max_batch=4)
    with serve(slow) as model:
        name = f"openai:http://127.0.0.1:{model.port}/v1#looker"
        folder = tmp_path_factory.mktemp("agent")
        more = ("--content", "answer", "--name", "looker", "--max-mb", "2")
        with serving(folder, name, *options, *more) as served:
            yield Endpoint(slow, model, served, samples)


def ask(endpoint: Endpoint, turns: list[Any], **more: Any) -> Any:
    async def story() -> Any:
        async with endpoint.served.client() as client:
            return await client.chat.completions.create(
                **({"model": "looker", "messages": turns} | more)  # type: ignore[call-overload]
            )

    return asyncio.run(story())


def test_a_model_behind_an_endpoint_calls_tools_behind_ours(endpoint: Endpoint) -> None:
    reply = ask(endpoint, messages(endpoint.samples[0]), temperature=0.7, max_tokens=5)
    assert reply.choices[0].message.content == endpoint.samples[0].ground_truth
    assert reply.choices[0].finish_reason == "stop"
    told = reply.model_extra["vtune"]
    assert [turn["role"] for turn in told["turns"]] == ["user", "assistant", "user", "assistant"]
    (call,) = told["calls"]
    assert (call["tool"], call["status"], call["images"]) == ("python", "ok", [1])
    assert "image.crop" in call["arguments"]["code"]
    assert [image["origin"] for image in told["trajectory"]["images"]] == ["input", "call:0"]
    assert told["settings"]["rollout"]["temperature"] == 0.0
    assert endpoint.model.requests[-1]["temperature"] == 0.0
    assert answer(told["turns"][-1]["content"]) == reply.choices[0].message.content


def test_a_stream_returns_the_same_in_one_chunk(endpoint: Endpoint) -> None:
    async def story() -> list[Any]:
        async with endpoint.served.client() as client:
            stream = await client.chat.completions.create(
                model="looker", messages=messages(endpoint.samples[0]), stream=True
            )
            return [chunk async for chunk in stream]

    first, last = asyncio.run(story())
    assert first.choices[0].delta.content == endpoint.samples[0].ground_truth
    assert last.choices[0].finish_reason == "stop"
    assert len(last.model_extra["vtune"]["calls"]) == 1


def test_clients_beyond_capacity_wait_and_none_is_lost(endpoint: Endpoint) -> None:
    async def story() -> list[Any]:
        async with endpoint.served.client() as client:
            asking = [
                client.chat.completions.create(model="looker", messages=messages(endpoint.samples[i % 6]))
                for i in range(16)
            ]
            return list(await asyncio.gather(*asking))

    endpoint.slow.seconds = 0.05
    try:
        replies = asyncio.run(story())
    finally:
        endpoint.slow.seconds = 0.0
    wanted = [sample.ground_truth if i % 3 < 2 else "none" for i, sample in enumerate(endpoint.samples)]
    assert [r.choices[0].message.content for r in replies] == [wanted[i % 6] for i in range(16)]
    assert endpoint.model.most_at_once <= 4


def test_a_client_that_leaves_frees_its_session(endpoint: Endpoint) -> None:
    served = endpoint.served
    before = served.until(lambda found: found["sessions"] == 0)
    assert (before["running"], before["waiting"]) == (0, 0)

    async def story() -> None:
        async with served.client() as client:
            asking = [
                asyncio.create_task(
                    client.chat.completions.create(model="looker", messages=messages(endpoint.samples[0]))
                )
                for _ in range(6)
            ]
            full = await asyncio.to_thread(
                served.until, lambda found: found["sessions"] >= 4 and found["waiting"] == 2
            )
            assert full["running"] == 4
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)

    endpoint.slow.seconds = 60.0
    began = time.monotonic()
    try:
        asyncio.run(story())
        after = served.until(lambda found: found["sessions"] == found["running"] == found["waiting"] == 0)
    finally:
        endpoint.slow.seconds = 0.0
    assert after["status"] == "ok"
    assert time.monotonic() - began < 50  # before any of the replies came
    # Its room is free for another conversation.
    assert ask(endpoint, messages(endpoint.samples[1])).choices[0].message.content


QUESTION = {"role": "user", "content": "Which digit?"}
BROKEN = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
FAR = {"type": "image_url", "image_url": {"url": "http://example.org/a.png"}}


@pytest.mark.parametrize(
    ("request_", "status", "message"),
    [
        ({"model": "other"}, 404, "there is no model 'other'"),
        ({"messages": []}, 422, "`messages` is not a list with at least one turn"),
        ({"messages": [{"role": "tool", "content": "1"}]}, 422, "not a turn"),
        ({"messages": [QUESTION, {"role": "assistant", "content": "7"}]}, 422, "is not the user's"),
        ({"messages": [{"role": "user", "content": [BROKEN]}]}, 422, "not a picture"),
        ({"messages": [{"role": "user", "content": [FAR]}]}, 422, "a picture that is not in the request"),
        ({"messages": [{"role": "user", "content": "<image> what?"}]}, 422, "the text contains <image>"),
        ({"messages": [QUESTION], "n": 2}, 422, "`n` is 2, which an agent does not support"),
        ({"messages": [QUESTION], "tools": [{"type": "function"}]}, 422, "`tools` is"),
        ({"messages": [QUESTION], "logprobs": True}, 422, "`logprobs` is true"),
    ],
    ids=["model", "empty", "role", "last", "picture", "url", "mark", "n", "tools", "logprobs"],
)
def test_an_unanswerable_request_is_refused_with_a_reason(
    endpoint: Endpoint, request_: dict[str, Any], status: int, message: str
) -> None:
    before = len(endpoint.model.requests)
    with pytest.raises(openai.APIStatusError) as caught:
        ask(endpoint, [QUESTION], **request_)
    assert caught.value.status_code == status
    assert message in caught.value.message
    assert len(endpoint.model.requests) == before


def test_a_lone_surrogate_is_refused_with_its_place() -> None:
    """JSON carries it; OpenAI's client would not send it on."""
    asked = json.loads('{"model": "looker", "messages": [{"role": "user", "content": "Which \\ud83d?"}]}')
    with pytest.raises(DataError, match="half a character") as caught:
        read_request(asked)
    assert caught.value.where == "messages[0].content[0]"


def test_early_refusals_have_the_error_format_of_clients(endpoint: Endpoint) -> None:
    async def story() -> None:
        async with endpoint.served.client(default_headers={"Origin": "https://example.com"}) as client:
            await client.models.list()

    with pytest.raises(openai.PermissionDeniedError) as caught:
        asyncio.run(story())
    body: Any = caught.value.body
    assert body["message"].startswith("a request from a web page, or under another name")
    assert (body["type"], body["code"]) == ("invalid_request_error", None)


def test_an_oversized_body_is_refused_unread(endpoint: Endpoint) -> None:
    url = "data:image/bmp;base64," + base64.b64encode(bytes(2 * 2**20)).decode()
    part = {"type": "image_url", "image_url": {"url": url}}
    with pytest.raises((openai.APIStatusError, openai.APIConnectionError)) as caught:
        ask(endpoint, [{"role": "user", "content": [part]}])
    # The service hangs up without reading; the client may notice that first.
    assert getattr(caught.value, "status_code", 413) == 413


def test_a_policy_that_fails_is_status_500_with_the_reason(endpoint: Endpoint) -> None:
    unknown = picture(64, 64, seed=9)
    turn = {
        "type": "image_url",
        "image_url": {"url": f"data:image/png;base64,{base64.b64encode(unknown).decode()}"},
    }
    replies = endpoint.model.replies
    endpoint.model.replies = [(400, {"message": "content policy"})]
    try:
        with pytest.raises(openai.InternalServerError, match="content policy"):
            ask(endpoint, [{"role": "user", "content": [turn]}])
    finally:
        endpoint.model.replies = replies
    assert endpoint.served.health()["status"] == "ok"


def test_the_one_model_is_listed_and_answers_to_its_name(endpoint: Endpoint) -> None:
    async def story() -> list[str]:
        async with endpoint.served.client() as client:
            with pytest.raises(openai.NotFoundError, match="there is no model 'org/other'") as caught:
                await client.models.retrieve("org/other")
            assert caught.value.code == "model_not_found"
            one = await client.models.retrieve("looker")
            return [one.id, *[model.id async for model in client.models.list()]]

    assert asyncio.run(story()) == ["looker", "looker"]


class Failing:
    """An agent whose conversations fail with a given number of tokens, including the policy's own."""

    room, sessions = 1, 0

    def __init__(self, tokens: int, own: int) -> None:
        self._mask = (0,) * (tokens - own) + (1,) * own

    async def run(self, jobs: list[Job]) -> list[Trajectory]:
        call = Call(tool="code", arguments="{}", status="infra", error="it died")
        tokens = {"token_ids": (1,) * len(self._mask), "loss_mask": self._mask}
        return [
            Trajectory(
                **{"sample_id": "a/0", "source": "a", "group": 0, "rollout": 0, "policy_version": 0},
                **{"messages": (), "calls": (call,), "stop_reason": "error", **tokens},  # type: ignore[arg-type]
            )
        ]


def test_completion_ids_are_unique_even_after_a_restart() -> None:
    (trajectory,) = asyncio.run(Failing(0, 0).run([]))
    given: dict[str, Any] = {"model": "agent", "content": "turn", "settings": {}}
    ids = {completion_of(trajectory, **given)["id"] for _ in range(3)}
    assert len(ids) == 3
    assert all(one.startswith("chatcmpl-") for one in ids)


@pytest.mark.parametrize(
    ("tokens", "own", "status", "code"),
    [
        pytest.param(0, 0, 400, "context_length_exceeded", id="the prompt alone fills it"),
        pytest.param(-1, 0, 500, None, id="it fits"),
        pytest.param(9, 5, 500, None, id="what failed had begun to reply"),
    ],
)
def test_a_too_long_conversation_is_a_client_error(
    tokens: int, own: int, status: int, code: str | None
) -> None:
    settings = read_agent("lens-tiny", ["offers=[]"])
    agent: Any = Failing(settings.rollout.max_tokens + tokens, own)
    none: Any = None
    service = AgentService(agent, none, settings, name="agent", content="turn")
    asked = read_request({"model": "agent", "messages": [{"role": "user", "content": "Hi"}]})
    with pytest.raises(VtuneError) as caught:
        asyncio.run(service.answer(asked))
    told = error_body(caught.value)["error"]
    assert (status_of(caught.value), told["code"]) == (status, code)
    assert ("fewer or shorter turns" in told["message"]) == (status == 400)


def test_an_agent_that_names_no_tools_is_refused() -> None:
    ended = vtune("serve", "agent", "--agent", "lens-tiny", "--set", "offers=null", "--model", "nowhere")
    assert ended.code == 2
    assert "--set 'offers=[python]'" in ended.err
