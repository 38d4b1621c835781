"""Bodies of status 200 that are not completions, or have another form than OpenAI's."""

import asyncio
import json
from typing import Any

import pytest

from tests.judge.server import JsonHandler, completion
from tests.listening import listening
from vtune.judge.completions import Completed, Completions, NoAnswer, NoVerdict


def asked(body: Any, kind: str = "application/json") -> Completed:
    """What is made of the only reply of an endpoint."""

    class Handler(JsonHandler):
        def post(self) -> None:
            self.reply(body, kind=kind)

    return answer_of(Handler)


def answer_of(handler: type[JsonHandler], **settings: Any) -> Completed:
    """What is made of the replies of an endpoint to one question."""

    async def story(port: int) -> Completed:
        client = Completions(
            "the model",
            f"http://127.0.0.1:{port}/v1",
            "m",
            concurrency=1,
            retries=0,
            timeout_s=60,
            api_key_env=None,
            fix="look",
        )
        async with client:
            return await client.create([{"role": "user", "content": "Hi"}], {"max_tokens": 8} | settings)

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
def test_a_body_that_is_no_completion_is_no_reply_and_says_why(body: Any, kind: str, why: str) -> None:
    with pytest.raises(NoAnswer) as error:
        asked(body, kind)
    assert "status 200" in error.value.what
    assert why in error.value.what
    assert error.value.fix == "look"


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
def test_a_message_is_its_text(message: Any, text: str) -> None:
    assert asked(json.dumps(with_message({"content": message}))).text == text


def test_a_completion_may_leave_out_what_is_not_needed() -> None:
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
"""Status and body, in which `seed` is refused."""


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_is_read_in_whatever_form_it_comes(name: str) -> None:
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
