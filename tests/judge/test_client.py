import asyncio
import io
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from pydantic import ValidationError

from tests.judge.server import FakeJudge, JsonHandler, serve
from tests.listening import listening
from tests.runs.commands import vtune
from vtune.config import find, load_recipe
from vtune.errors import DataError, RecipeError, RunFailed, ServiceError
from vtune.judge.client import JudgeClient
from vtune.judge.completions import NoVerdict
from vtune.judge.pictures import read_bytes
from vtune.judge.prompts import Prompt
from vtune.judge.replies import read_level
from vtune.runs.train.rl_recipe import RLRecipe
from vtune.schema.message import Picture

PROMPT = Prompt("You judge.", "What do you see?")


def picture(colour: str) -> Picture:
    out = io.BytesIO()
    Image.new("RGB", (8, 8), colour).save(out, "PNG")
    return Picture(out.getvalue())


def ask(
    judge: FakeJudge, *prompts: Prompt, cache: Path | None = None, **changes: object
) -> list[str | BaseException]:
    async def story() -> list[str | BaseException]:
        async with JudgeClient(judge.endpoint(**changes), cache=cache) as client:
            asking = [client.ask(prompt, [picture("red")]) for prompt in prompts]
            return await asyncio.gather(*asking, return_exceptions=True)

    return asyncio.run(story())


def test_the_question_and_the_pictures_are_sent_and_nothing_else() -> None:
    with serve("1") as judge:
        assert ask(judge, PROMPT) == ["1"]
    (request,) = judge.requests
    assert (request["model"], request["temperature"], request["max_tokens"]) == ("judge", 0.0, 8)
    system, user = request["messages"]
    assert system == {"role": "system", "content": PROMPT.system}
    text, image = user["content"]
    assert text == {"type": "text", "text": PROMPT.text}
    assert image["image_url"]["url"].startswith("data:image/png;base64,")


def test_pictures_are_hashed_once_per_question_and_never_by_the_thread_that_serves_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[bool] = []

    def watched(one: Picture) -> bytes:
        read.append(threading.current_thread() is threading.main_thread())
        return read_bytes(one)

    for place in ("pictures", "client"):
        monkeypatch.setattr(f"vtune.judge.{place}.read_bytes", watched, raising=False)

    async def story(judge: FakeJudge) -> None:
        async with JudgeClient(judge.endpoint()) as client:
            first = await client.ask_for(PROMPT, [picture("red")], read_level, "a level")
            sent = len(read)
            assert await client.ask_for(PROMPT, [picture("red")], read_level, "a level") == first
            assert len(read) == sent + 1

    with serve("1") as judge:
        asyncio.run(story(judge))
    assert not any(read)


def test_the_oldest_reply_in_memory_is_dropped_first() -> None:
    prompts = [replace(PROMPT, text=text) for text in ("a", "b", "c", "b", "a")]

    async def story(judge: FakeJudge) -> None:
        async with JudgeClient(judge.endpoint(), most=2) as client:
            for prompt in prompts:
                assert await client.ask(prompt, []) == "1"

    with serve("1") as judge:
        asyncio.run(story(judge))
    assert [request["messages"][1]["content"][0]["text"] for request in judge.requests] == [
        "a",
        "b",
        "c",
        "a",
    ]


def test_a_busy_judge_is_retried() -> None:
    with serve(503, 429, "1") as judge:
        assert ask(judge, PROMPT) == ["1"]
    assert len(judge.requests) == 3


def test_a_judge_that_stays_down_is_a_service_error() -> None:
    with serve(503) as judge:
        (error,) = ask(judge, PROMPT)
    assert isinstance(error, ServiceError)
    assert len(judge.requests) == 3


def test_an_invalid_request_is_not_retried() -> None:
    with serve(400) as judge:
        (error,) = ask(judge, PROMPT)
    assert isinstance(error, ServiceError)
    assert len(judge.requests) == 1


def test_a_missing_and_a_slow_judge_are_service_errors() -> None:
    with serve("1", delay_s=0.5) as judge:
        (slow,) = ask(judge, PROMPT, timeout_s=0.05, retries=0)
    (gone,) = ask(judge, PROMPT, retries=0)
    assert isinstance(slow, ServiceError)
    assert isinstance(gone, ServiceError)


def test_an_empty_reply_is_not_a_verdict_and_comes_with_a_fix() -> None:
    with serve("") as judge:
        (error,) = ask(judge, PROMPT)
    assert isinstance(error, NoVerdict)
    assert "its 8 max_tokens were spent on thoughts" in error.what
    assert "raise `max_tokens`" in error.fix


def reasons(request: dict[str, Any]) -> str | tuple[int, dict[str, Any]]:
    """Answer as OpenAI's API does for the GPT-5 family."""
    if "max_tokens" in request:
        message = (
            "Unsupported parameter: 'max_tokens' is not supported with this model. "
            "Use 'max_completion_tokens' instead."
        )
        return 400, {"message": message, "param": "max_tokens", "code": "unsupported_parameter"}
    if "temperature" in request:
        message = (
            "Unsupported value: 'temperature' does not support 0.0 with this model. "
            "Only the default (1) value is supported."
        )
        return 400, {"message": message, "param": "temperature", "code": "unsupported_value"}
    return "1"


def test_a_reasoning_model_gets_its_own_parameters_after_one_refusal() -> None:
    others = [replace(PROMPT, text=str(number)) for number in range(3)]
    with serve(reasons) as judge:
        assert ask(judge, PROMPT, concurrency=1) == ["1"]
        first = len(judge.requests)
        assert ask(judge, PROMPT, *others, concurrency=1) == ["1"] * 4
    assert first == 3
    assert len(judge.requests) == first + 3 + 3
    assert judge.requests[-1]["max_completion_tokens"] == 8
    assert not {"max_tokens", "temperature"} & set(judge.requests[-1])


def test_many_concurrent_first_questions_all_succeed() -> None:
    with serve(reasons, delay_s=0.02) as judge:
        assert ask(judge, *[replace(PROMPT, text=str(n)) for n in range(8)], concurrency=8) == ["1"] * 8


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        ({"message": "`temperature` is deprecated for this model."}, "temperature"),
        ({"message": "max_tokens is not supported, use max_completion_tokens"}, "max_tokens"),
    ],
)
def test_a_refused_parameter_is_recognised_from_the_message_alone(
    error: dict[str, Any], refused: str
) -> None:
    with serve((400, error), "1") as judge:
        assert ask(judge, PROMPT) == ["1"]
    assert refused in judge.requests[0]
    assert refused not in judge.requests[1]


@pytest.mark.parametrize(
    "error",
    [
        {"message": "temperature must be at most 2", "param": "temperature"},
        {"message": "max_tokens is too large: 10000. This model takes 4096.", "param": "max_tokens"},
        {"message": "image_url is not supported by this model", "param": "messages"},
    ],
)
def test_an_invalid_setting_is_an_error_and_not_dropped(error: dict[str, Any]) -> None:
    with serve((400, error), "1") as judge:
        (failed,) = ask(judge, PROMPT)
    assert isinstance(failed, ServiceError)
    assert error["message"] in failed.what
    assert len(judge.requests) == 1


def ask_level(judge: FakeJudge, **changes: Any) -> str | BaseException:
    async def story() -> str:
        async with JudgeClient(judge.endpoint(**changes)) as client:
            return await client.ask_for(PROMPT, [], read_level, "1, 0.5 or 0.25")

    try:
        return asyncio.run(story())
    except ServiceError as error:
        return error


def test_an_unreadable_reply_is_asked_for_once_more() -> None:
    with serve("1 or 0.5", "0.5") as judge:
        assert ask_level(judge) == "partial"
    first, second = [request["messages"][0]["content"] for request in judge.requests]
    assert second == f"{first}\nYour last reply could not be read. Reply with nothing but 1, 0.5 or 0.25."


def test_a_judge_that_stays_unreadable_gives_no_verdict() -> None:
    with serve("well, …") as judge:
        error = ask_level(judge)
    assert isinstance(error, NoVerdict)
    assert error.what == "the judge wrote 'well, …' instead of 1, 0.5 or 0.25, asked twice"
    assert len(judge.requests) == 2


def test_an_empty_reply_is_asked_for_once_more() -> None:
    with serve("", "0.5") as judge:
        assert ask_level(judge) == "partial"
    assert len(judge.requests) == 2
    with serve("") as judge:
        error = ask_level(judge)
    assert isinstance(error, NoVerdict)
    assert "reply is empty" in error.what
    assert len(judge.requests) == 2


def test_an_unreadable_reply_is_asked_again_only_in_a_later_session(tmp_path: Path) -> None:
    async def levels(judge: FakeJudge) -> list[str | None]:
        async with JudgeClient(judge.endpoint(), cache=tmp_path / "judge.jsonl") as client:
            found: list[str | None] = []
            for _ in range(2):
                try:
                    found.append(await client.ask_for(PROMPT, [], read_level, "1, 0.5 or 0.25"))
                except NoVerdict:
                    found.append(None)
            return found

    with serve("well", "hm", "0.5") as judge:
        assert asyncio.run(levels(judge)) == [None, None]
        assert len(judge.requests) == 2
        assert asyncio.run(levels(judge)) == ["partial", "partial"]
        assert len(judge.requests) == 3
        assert asyncio.run(levels(judge)) == ["partial", "partial"]
    assert len(judge.requests) == 3
    assert len((tmp_path / "judge.jsonl").read_text().splitlines()) == 5  # three replies and two removals


def test_a_judge_that_is_down_is_not_blamed_on_the_question() -> None:
    for status in (401, 404, 503):
        with serve(status) as judge:
            error = ask_level(judge, retries=0)
        assert isinstance(error, ServiceError)
        assert not isinstance(error, NoVerdict)
    with serve((400, {"message": "the prompt violates our policy"})) as judge:
        assert isinstance(ask_level(judge), NoVerdict)


@pytest.mark.parametrize("status", [401, 403])
def test_the_fix_for_a_refused_key_is_another_key(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "wrong")
    with serve(status) as judge:
        error = ask_level(judge, api_key_env="JUDGE_KEY")
        nameless = ask_level(judge)
    assert isinstance(error, ServiceError)
    assert isinstance(nameless, ServiceError)
    assert error.fix == "check the key in JUDGE_KEY, and that it may use this model"
    assert nameless.fix == "name the environment variable that holds its key as api_key_env"


def test_after_many_failures_each_question_gets_one_attempt() -> None:
    prompts = [Prompt("", str(number)) for number in range(6)]
    with serve(503) as judge:
        answers = ask(judge, *prompts, concurrency=1, retries=2)
    assert all(isinstance(answer, ServiceError) for answer in answers)
    assert len(judge.requests) == 3 + 5


def test_a_refused_question_does_not_count_as_a_failing_judge() -> None:
    prompts = [Prompt("", str(number)) for number in range(4)]
    with serve(400, 404, 422, 503, 503, "1") as judge:
        answers = ask(judge, *prompts, concurrency=1, retries=2)
    assert [isinstance(answer, ServiceError) for answer in answers] == [True, True, True, False]
    assert len(judge.requests) == 6


def test_a_judge_that_is_busy_for_many_questions_counts_as_down() -> None:
    prompts = [Prompt("", str(number)) for number in range(3)]
    with serve(429) as judge:
        ask(judge, *prompts, concurrency=1, retries=2)
    assert len(judge.requests) == 3 + 2


def test_the_same_question_is_sent_once_while_in_progress() -> None:
    with serve("1", delay_s=0.05) as judge:
        assert ask(judge, PROMPT, PROMPT, PROMPT) == ["1"] * 3
    assert len(judge.requests) == 1


def test_concurrent_requests_stay_within_the_limit() -> None:
    prompts = [Prompt("", str(number)) for number in range(8)]
    with serve("1", delay_s=0.03) as judge:
        assert ask(judge, *prompts, concurrency=2) == ["1"] * 8
    assert judge.most_at_once == 2


def test_replies_but_not_failures_are_cached_across_runs(tmp_path: Path) -> None:
    cache = tmp_path / "judge" / "replies.jsonl"
    with serve(400, "1", "0.5") as judge:
        (error,) = ask(judge, PROMPT, cache=cache)
        assert isinstance(error, ServiceError)
        assert ask(judge, PROMPT, cache=cache) == ["1"]
        assert ask(judge, PROMPT, cache=cache) == ["1"]
        assert ask(judge, PROMPT, cache=cache, model="other") == ["0.5"]
    assert len(judge.requests) == 3


def test_a_full_disk_is_a_message_that_names_the_cache(tmp_path: Path) -> None:
    cache = tmp_path / "judge.jsonl"

    async def run() -> None:
        async with JudgeClient(judge.endpoint(), cache=cache) as client:
            assert client._file is not None
            client._file.close()
            client._file = open("/dev/full", "a")  # noqa: SIM115 - the client closes it
            await client.ask(PROMPT, ())

    with (
        serve("1") as judge,
        pytest.raises(RunFailed, match=r"judge\.jsonl cannot be written: No space left(.|\n)*make room"),
    ):
        asyncio.run(run())


def test_a_cache_truncated_by_a_kill_is_repaired_and_a_broken_one_reported(tmp_path: Path) -> None:
    cache = tmp_path / "replies.jsonl"
    cache.write_text('{"key": "a", "reply": "1"}\n{"key": "b", "re')
    with serve("0") as judge:
        assert ask(judge, PROMPT, cache=cache) == ["0"]
        assert cache.read_text().count("\n") == 2
        for nonsense in (b"nonsense", b'{"key": "b", "reply": "\xe9"}'):
            cache.write_bytes(b'{"key": "a", "reply": "1"}\n' + nonsense + b"\n")
            with pytest.raises(DataError, match=r"replies\.jsonl:2") as broken:
                ask(judge, PROMPT, cache=cache)
            # Only the line, not the file: everything else in it was paid for.
            assert broken.value.fix.startswith("remove the line")


def test_a_key_that_is_not_set_is_a_recipe_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    with serve("1") as judge:
        with pytest.raises(RecipeError, match="JUDGE_KEY"):
            ask(judge, PROMPT, api_key_env="JUDGE_KEY")
        monkeypatch.setenv("JUDGE_KEY", "secret")
        assert ask(judge, PROMPT, api_key_env="JUDGE_KEY") == ["1"]


def test_an_unreadable_picture_is_a_data_error() -> None:
    async def story(client: JudgeClient) -> None:
        async with client:
            await client.ask(PROMPT, [Picture(b"no picture")])

    with serve("1") as judge, pytest.raises(DataError):
        asyncio.run(story(JudgeClient(judge.endpoint())))


@pytest.mark.parametrize("key", ["", "abc\n", "a b", "schl\u00fcssel"])
def test_a_key_that_does_not_fit_a_header_is_refused_before_sending(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUDGE_KEY", key)
    with serve("1") as judge, pytest.raises(RecipeError, match="environment variable JUDGE_KEY"):
        ask(judge, PROMPT, api_key_env="JUDGE_KEY")
    assert not judge.requests


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8000/v1",
        "127.0.0.1:8000",
        "ftp://x/v1",
        "",
        "http://[x/v1",
        "http://x:99999/v1",
        "http://a b",
    ],
)
def test_an_unusable_url_is_refused_with_the_recipe(url: str) -> None:
    with pytest.raises(ValidationError, match="is not a usable URL: write http://HOST:PORT/v1"):
        FakeJudge([]).endpoint(base_url=url)


def test_a_password_in_a_url_is_refused_and_never_repeated(tmp_path: Path) -> None:
    url = "http://me:s3cret@host/v1"
    values = [f"base_url: {url}", "model: m", "temperature: 0", "max_tokens: 8", "concurrency: 1"]
    judge = ", ".join([*values, "retries: 0", "timeout_s: 1", "api_key_env: null"])
    with pytest.raises(RecipeError, match="holds a user or a password") as caught:
        load_recipe(find("codev-tiny", "recipes.rl"), RLRecipe, [f"reward.judge={{{judge}}}"])
    assert "s3cret" not in f"{caught.value} {caught.value.fix} {caught.value.where}"
    ended = vtune("faithfulness", str(tmp_path), "--judge-url", url, "--judge-model", "m")
    assert ended.code == 2
    assert "s3cret" not in ended.err


@pytest.mark.parametrize(
    ("choices", "said", "fix"),
    [
        (
            [{"finish_reason": "length", "message": {"content": "<think>let me"}}],
            "cut at its 8",
            "raise `max_",
        ),
        (
            [{"message": {"content": None, "reasoning_content": "so"}}],
            "came as thoughts",
            "reasoning parser",
        ),
        ([], "it has no `choices`", "a model that chats"),
        ([{"message": {"content": ""}}], "reply is empty", "another model"),
    ],
    ids=["cut in its thoughts", "thoughts apart", "no choice", "empty"],
)
def test_an_unread_verdict_says_why_and_what_to_do(choices: list[Any], said: str, fix: str) -> None:
    class Handler(JsonHandler):
        def post(self) -> None:
            self.body()
            self.reply({"choices": choices})

    async def story(judge: FakeJudge) -> None:
        async with JudgeClient(judge.endpoint()) as client:
            await client.ask_for(PROMPT, (), lambda _: None, "TRUE or FALSE")

    with listening(Handler) as port, pytest.raises(NoVerdict, match=said) as error:
        asyncio.run(story(FakeJudge([], port=port)))
    assert fix in error.value.fix
