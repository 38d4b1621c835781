"""Bodies with status 200 that are not completions, or differ from OpenAI's form."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.judge.server import JsonHandler, completion
from tests.listening import listening
from vtune.judge.completed import Completed
from vtune.judge.completions import Completions, NoAnswer, NoReply, NoVerdict


def asked(body: Any, kind: str = "application/json") -> Completed:
    """The client's result for an endpoint's only reply."""

    class Handler(JsonHandler):
        def post(self) -> None:
            self.reply(body, kind=kind)

    return answer_of(Handler)


def answer_of(
    handler: type[JsonHandler], *, retries: int = 0, lost: Callable[[], object] = bool, **settings: Any
) -> Completed:
    """The client's result for an endpoint's replies to one question."""

    async def story(port: int) -> Completed:
        client = Completions(
            "the model",
            f"http://127.0.0.1:{port}/v1",
            "m",
            concurrency=1,
            retries=retries,
            timeout_s=60,
            api_key_env=None,
            fix="look",
        )
        async with client:
            messages = [{"role": "user", "content": "Hi"}]
            return await client.create(messages, {"max_tokens": 8} | settings, lost=lost)

    with listening(handler) as port:
        return asyncio.run(story(port))


def with_message(message: Any, **choice: Any) -> dict[str, Any]:
    body = completion("1")
    body["choices"][0] |= {"message": message, **choice}
    return body


@pytest.mark.parametrize(
    ("body", "kind", "why"),
    [
        pytest.param("<html>Log in</html>", "text/html", "Expecting value", id="a page"),
        pytest.param("<html>Log in</html>", "application/json", "Expecting value", id="a page as JSON"),
        pytest.param("", "application/json", "Expecting value", id="nothing"),
        pytest.param("null", "application/json", "not a JSON object", id="null"),
        pytest.param({"error": {"message": "overloaded"}}, "application/json", "overloaded", id="an error"),
        pytest.param({"detail": "?"}, "application/json", "no list of `choices`", id="something else"),
        pytest.param(with_message(None), "application/json", "`message`", id="no message"),
        pytest.param(with_message({"content": 7}), "application/json", "`content`", id="a number"),
    ],
)
def test_a_body_that_is_not_a_completion_is_an_error_that_says_why(body: Any, kind: str, why: str) -> None:
    with pytest.raises(NoAnswer) as error:
        asked(body, kind)
    assert "status 200" in error.value.what
    assert why in error.value.what
    assert error.value.fix == "look"


CUT, PAGE = json.dumps(completion("1"))[:35], "<html>Bad gateway</html>"


def in_turn(*replies: tuple[int, Any]) -> type[JsonHandler]:
    """An endpoint that returns these statuses and bodies, each once."""
    left = iter(replies)

    class Handler(JsonHandler):
        def post(self) -> None:
            status, body = next(left)
            self.reply(body, status=status)

    return Handler


@pytest.mark.parametrize(
    ("replies", "retries", "lost"),
    [
        pytest.param([(200, CUT), (200, completion("1"))], 1, 1, id="cut short"),
        pytest.param([(200, PAGE), (200, CUT), (200, completion("1"))], 2, 2, id="a page, then cut short"),
        pytest.param([(500, {}), (200, CUT), (429, {}), (200, completion("1"))], 3, 1, id="among others"),
    ],
)
def test_a_broken_body_is_retried_like_a_status_of_500(
    replies: list[tuple[int, Any]], retries: int, lost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vtune.judge.completions.FIRST_WAIT_S", 0.0)
    spoilt: list[int] = []
    assert answer_of(in_turn(*replies), retries=retries, lost=lambda: spoilt.append(1)).text == "1"
    assert len(spoilt) == lost
    with pytest.raises(NoReply):
        answer_of(in_turn(*replies), retries=retries - 1)


def test_a_body_that_stays_broken_fails_and_refused_parameters_are_not_attempts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("vtune.judge.completions.FIRST_WAIT_S", 0.0)
    refused = (400, {"error": {"message": "Unsupported parameter: max_tokens"}})
    spoilt: list[int] = []
    with pytest.raises(NoAnswer, match="status 200, but not a completion: Unterminated string"):
        answer_of(in_turn(refused, (200, PAGE), (200, CUT)), retries=1, lost=lambda: spoilt.append(1))
    assert len(spoilt) == 1


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (
            [
                {"type": "thinking", "thinking": []},
                {"type": "text", "text": "4"},
                {"type": "text", "text": "2"},
            ],
            "42",
        ),
        ("4\ud83d2", "4?2"),
        (None, ""),
    ],
    ids=["parts", "half a surrogate pair", "thoughts alone"],
)
def test_a_message_is_read_as_text(message: Any, text: str) -> None:
    assert asked(json.dumps(with_message({"content": message}))).text == text


def test_a_completion_may_omit_unneeded_fields() -> None:
    body = {"choices": [{"message": {"content": "42"}}], "usage": {"prompt_tokens": "10"}}
    found = asked(body)
    assert (found.text, found.finish, found.model) == ("42", "stop", "m")
    assert (found.input, found.output) == (None, None)


DETAIL = {"type": "extra_forbidden", "loc": ["body", "seed"], "msg": "Extra inputs are not permitted"}
REFUSALS = {
    "Gemini": (400, [{"error": {"code": 400, "message": 'Unknown name "seed": Cannot find field.'}}]),
    "Mistral": (422, {"object": "error", "message": {"detail": [DETAIL]}}),
    "FastAPI": (422, {"detail": [DETAIL]}),
    "a text": (400, {"error": "Unrecognized request argument supplied: seed"}),
}
"""Name -> status and body that refuse `seed`."""


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_is_read_in_every_form(name: str) -> None:
    class Handler(JsonHandler):
        def post(self) -> None:
            if b"seed" in self.body():
                self.reply(REFUSALS[name][1], status=REFUSALS[name][0])
            else:
                self.reply(completion("1"))

    assert answer_of(Handler, seed=1).text == "1"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"detail": "the prompt has 9000 tokens"}, "the prompt has 9000 tokens"),
        ({"error": "Input validation error: too long"}, "Input validation error: too long"),
        ("<html>\n<b>Blocked</b>" + "." * 10_000, "<html> <b>Blocked</b>..."),
        ({"detail": "half of it: \ud83d"}, "half of it"),
    ],
    ids=["FastAPI", "TGI", "a page", "half a surrogate pair"],
)
def test_an_error_repeats_what_the_endpoint_says(body: Any, said: str) -> None:
    class Handler(JsonHandler):
        def post(self) -> None:
            self.reply(body, status=422)

    with pytest.raises(NoVerdict) as error:
        answer_of(Handler)
    assert "Error code: 422 - " in error.value.what
    assert said in error.value.what
    assert len(error.value.what.encode()) < 700
