"""Bodies of status 200 that are not completions, or have another form than OpenAI's."""

import asyncio
import json
from typing import Any

import pytest

from tests.judge.server import JsonHandler, completion, listening
from vtune.judge.completions import Completed, Completions, NoAnswer


def asked(body: Any, kind: str = "application/json") -> Completed:
    """What is made of the only reply of an endpoint."""

    class Handler(JsonHandler):
        def post(self) -> None:
            self.reply(body, kind=kind)

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
            return await client.create([{"role": "user", "content": "Hi"}], {"max_tokens": 8})

    with listening(Handler) as port:
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
