"""Requests to an endpoint, and the interpretation of its replies."""

import asyncio
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.judge.server import FakeJudge, JsonHandler, completion, serve
from tests.listening import listening
from tests.models.rows import picture
from vtune.errors import DataError, RecipeError, ServiceError
from vtune.judge.budget import Prices
from vtune.judge.completed import Completed
from vtune.models.pictures import PixelBudget
from vtune.rollout.engine import Completion, Request, Sampling
from vtune.rollout.openai import Address, OpenAIEngine, Served, ServedPolicy, encoded, said
from vtune.rollout.usage import Ledger, Used, spent
from vtune.rollout.words import fitted
from vtune.schema.message import Message

BUDGET = PixelBudget(min_pixels=1, max_pixels=64 * 64)


def reply(text: str, finish: str = "stop", stop: str | None = None) -> Completed:
    return Completed(
        text=text,
        thoughts=False,
        finish=finish,
        stop=stop,
        input=1,
        cached=0,
        output=1,
        model="m",
        fingerprint=None,
    )


@pytest.mark.parametrize(
    ("given", "text", "finish"),
    [
        (reply("<code>1"), "<code>1</code>", "stop"),
        (reply("<code>1</code> and on"), "<code>1</code>", "stop"),
        (reply("a</code>b"), "a</code>", "stop"),
        (reply("<answer>7</answer>"), "<answer>7</answer>", "end"),
        (reply("<code>1", "length"), "<code>1", "length"),
        (reply("<code>1", "content_filter"), "<code>1", "end"),
        (reply("no tag", stop="</code>"), "no tag</code>", "stop"),
        (reply("", "length"), "", "length"),
        (reply(""), "", "end"),
        (reply("<think>No <code>.</think>7"), "<think>No <code>.</think>7", "end"),
        (reply("No <code>. <answer>7</answer>"), "No <code>. <answer>7</answer>", "end"),
        (reply("<think>No <code>?</think><code>1"), "<think>No <code>?</think><code>1</code>", "stop"),
    ],
    ids=[
        "cut off",
        "goes on",
        "no opening",
        "ends",
        "limit",
        "filter",
        "vllm says",
        "thoughts",
        "empty",
        "mentioned in thoughts",
        "mentioned before the answer",
        "mentioned, then opened",
    ],
)
def test_a_turn_ends_as_with_a_token_engine(given: Completed, text: str, finish: str) -> None:
    assert said(given, ("</code>",)) == (text, finish)


def test_without_stop_texts_a_turn_is_unchanged() -> None:
    assert said(reply("<code>1"), ()) == ("<code>1", "end")


SIDES = st.integers(1, 5000)


@given(SIDES, SIDES, st.integers(1, 4000), st.integers(4001, 4_000_000), st.sampled_from([1, 28, 32]))
def test_a_picture_fits_its_budget_as_closely_as_multiples_allow(
    width: int, height: int, least: int, most: int, multiple: int
) -> None:
    wide, high = fitted(width, height, least, most, multiple=multiple)
    assert wide % multiple == high % multiple == 0
    assert min(wide, high) >= multiple
    if min(wide, high) > multiple:
        assert wide * high <= max(most, least + multiple * (wide + high))
        assert wide * high >= min(least, most - multiple * (wide + high))


def test_a_picture_that_fits_is_not_resized() -> None:
    assert fitted(640, 480, 1, 640 * 480, multiple=1) == (640, 480)
    assert fitted(1000, 500, 1, 125_000, multiple=1) == (500, 250)
    assert fitted(100, 50, 20_000, 30_000, multiple=1) == (200, 100)
    assert fitted(100, 60, 1, 10**6, multiple=28) == (112, 56)


def test_a_picture_is_sent_as_png_or_else_as_jpeg_or_else_not_at_all() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    image = Image.fromarray(noise)
    kind, data = encoded(image, 10**6)
    assert kind == "png"
    assert (np.asarray(Image.open(io.BytesIO(data))) == noise).all()
    kind, smaller = encoded(image, len(data) - 1)
    assert (kind, Image.open(io.BytesIO(smaller)).format) == ("jpeg", "JPEG")
    assert len(smaller) < len(data)
    with pytest.raises(RecipeError, match=r"64 x 64 takes \d+ bytes as JPEG, more than 100"):
        encoded(image, 100)


def draw(
    model: FakeJudge,
    ledger: Path,
    *,
    turns: int = 1,
    temperature: float = 0.0,
    content: str = "See <image> and say.",
) -> list[Completion]:
    user = Message("user", content, (0,) * content.count("<image>"))
    policy = ServedPolicy.of(BUDGET, Served(api_key_env=None))
    address = Address(f"http://127.0.0.1:{model.port}/v1", "m")

    async def story() -> list[Completion]:
        with Ledger.at(ledger) as book:
            engine = OpenAIEngine(
                address, Served(api_key_env=None), policy.pictures, max_batch=2, ledger=book
            )
            await engine.open()
            request = Request(
                token_ids=(),
                pixels=[policy.pictures.read(picture(8, 8))],
                sampling=Sampling(temperature=temperature, max_new_tokens=7, stop=("</code>", "\n\n")),
                key=(0, 0, 1, 0, 0),
                messages=(Message("system", "Be brief."), user),
            )
            found = [await engine.generate(request) for _ in range(turns)]
            await engine.aclose()
        return found

    return asyncio.run(story())


def test_pictures_are_placed_at_their_marks(tmp_path: Path) -> None:
    with serve("7") as model:
        (completion,) = draw(model, tmp_path / "usage.jsonl")
    assert (completion.text, completion.finish, completion.context) == ("7", "end", 15)
    assert completion.token_ids == completion.logprobs == completion.weight_versions == ()
    system, user = model.requests[0]["messages"]
    assert system == {"role": "system", "content": "Be brief."}
    assert [part["type"] for part in user["content"]] == ["text", "image_url", "text"]
    # A stop text that is not a tag is not sent: it would be unclear whether the model produced it.
    assert model.requests[0]["stop"] == ["</code>"]


BETWEEN = "<image>\n<image>\nSay. <image>\n\n"


def test_white_space_around_pictures_is_sent_as_a_local_policy_reads_it(tmp_path: Path) -> None:
    with serve("7") as model:
        draw(model, tmp_path / "usage.jsonl", content=BETWEEN)
    parts = model.requests[0]["messages"][1]["content"]
    assert "".join(part.get("text", "<image>") for part in parts) == BETWEEN


def test_white_space_is_left_out_and_reported_where_the_endpoint_refuses_it(tmp_path: Path) -> None:
    def strict(body: dict[str, Any]) -> Any:
        texts = [part["text"] for part in body["messages"][1]["content"] if part["type"] == "text"]
        if all(text.strip() for text in texts):
            return "7"
        return 400, {"message": "messages: text content blocks must contain non-whitespace text"}

    with serve(strict) as model:
        first, second = draw(model, tmp_path / "usage.jsonl", turns=2, content=BETWEEN)
    assert (first.text, second.text, len(model.requests)) == ("7", "7", 3)
    assert spent(tmp_path / "usage.jsonl", None)["without"] == ["white space between pictures"]


def test_a_reply_withheld_by_a_filter_is_not_the_models_answer(tmp_path: Path) -> None:
    class Handler(JsonHandler):
        def post(self) -> None:
            self.body()
            choice = {"finish_reason": "content_filter", "message": {"role": "assistant", "content": None}}
            self.reply({"choices": [choice]})

    with listening(Handler) as port, pytest.raises(ServiceError, match="filter withheld"):
        draw(FakeJudge([], port=port), tmp_path / "usage.jsonl")


@pytest.mark.parametrize("content", [None, "<think>I zoom in.</think>\n", "Let me zoom in on the sign."])
def test_a_call_parsed_out_by_the_endpoint_is_not_the_models_answer(
    content: str | None, tmp_path: Path
) -> None:
    class Handler(JsonHandler):
        def post(self) -> None:
            self.body()
            call = {"id": "c", "type": "function", "function": {"name": "zoom", "arguments": "{}"}}
            message = {"role": "assistant", "content": content, "tool_calls": [call]}
            self.reply({"choices": [{"finish_reason": "tool_calls", "message": message}]})

    with listening(Handler) as port, pytest.raises(ServiceError, match="tool call apart from its text"):
        draw(FakeJudge([], port=port), tmp_path / "usage.jsonl")


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_a_reply_classified_as_thoughts_is_not_the_models_answer(key: str, tmp_path: Path) -> None:
    """It ended without closing its thoughts; a truncated one has no answer."""
    finish = ["stop", "length"]

    class Handler(JsonHandler):
        def post(self) -> None:
            self.body()
            message = {"role": "assistant", "content": None, key: "It is red. <answer>A</answer>"}
            self.reply({"choices": [{"finish_reason": finish.pop(0), "message": message}]})

    with listening(Handler) as port:
        with pytest.raises(ServiceError, match="all that the model wrote as thoughts") as error:
            draw(FakeJudge([], port=port), tmp_path / "usage.jsonl")
        assert "without a reasoning parser" in error.value.fix
        (cut,) = draw(FakeJudge([], port=port), tmp_path / "usage.jsonl")
        assert (cut.text, cut.finish) == ("", "length")


def test_settings_refused_by_a_model_are_dropped_and_noted(tmp_path: Path) -> None:
    def picky(body: dict[str, Any]) -> Any:
        for name in ("stop", "temperature", "max_tokens"):
            if name in body:
                return 400, {"message": f"Unsupported parameter: '{name}'", "param": name}
        return "7"

    with serve(picky) as model:
        draw(model, tmp_path / "usage.jsonl", turns=2)
    last = model.requests[-1]
    assert last["max_completion_tokens"] == 7
    assert not {"stop", "temperature", "max_tokens"} & set(last)
    assert len(model.requests) == 5
    assert spent(tmp_path / "usage.jsonl", None)["without"] == ["max_tokens", "stop", "temperature"]


def test_if_two_settings_exclude_each_other_top_p_is_dropped(tmp_path: Path) -> None:
    def either(body: dict[str, Any]) -> Any:
        if "top_p" in body:
            return 400, {"message": "`temperature` and `top_p` cannot both be specified for this model."}
        return "7"

    with serve(either) as model:
        draw(model, tmp_path / "usage.jsonl")
    assert "temperature" in model.requests[-1]
    assert spent(tmp_path / "usage.jsonl", None)["without"] == ["top_p"]


def test_a_broken_answer_is_generated_again_and_has_unknown_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vtune.judge.completions.FIRST_WAIT_S", 0.0)
    replies = iter(['{"choices": [{"mess', completion("7")])

    class Handler(JsonHandler):
        def post(self) -> None:
            self.reply(next(replies))

    with listening(Handler) as port:
        (drawn,) = draw(FakeJudge([], port=port), tmp_path / "usage.jsonl")
    assert drawn.text == "7"
    found = spent(tmp_path / "usage.jsonl", None)
    assert (found["turns"], found["uncounted"], found["answered_by"]) == (2, 1, [completion("7")["model"]])


def used(**changes: Any) -> Used:
    values: dict[str, Any] = {"input": 1000, "cached": 400, "output": 100, "model": "m-1"}
    return Used(**(values | {"fingerprint": None, "without": []} | changes))


def test_costs_use_the_users_prices_and_are_unknown_without_token_counts(tmp_path: Path) -> None:
    prices = Prices(input=2.0, cached_input=0.5, output=8.0, currency="USD")
    path = tmp_path / "usage.jsonl"
    assert spent(path, prices)["cost"] == {"amount": 0.0, "currency": "USD"}
    with Ledger.at(path) as book:
        book.add(used())
        book.add(used(model="m-2", fingerprint="fp"))
    found = spent(path, prices)
    # 1200 fresh at 2, 800 cached at 0.5, 200 written at 8, per million
    assert found["cost"] == {"amount": pytest.approx((2400 + 400 + 1600) / 1e6), "currency": "USD"}
    assert (found["answered_by"], found["system_fingerprints"]) == (["m-1", "m-2"], ["fp"])
    assert spent(path, None)["cost"] is None
    with Ledger.at(path) as book:
        book.add(used(input=None, output=None))
    found = spent(path, prices)
    assert (found["turns"], found["uncounted"], found["cost"], found["input_tokens"]) == (3, 1, None, None)


def test_a_ledger_continues_after_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "usage.jsonl"
    with Ledger.at(path) as book:
        book.add(used())
    path.write_text(path.read_text() + '{"input": 10')
    with Ledger.at(path) as book:
        book.add(used())
    assert spent(path, None)["turns"] == 2
    path.write_text("no line\n")
    with pytest.raises(DataError, match="not a turn's usage"):
        spent(path, None)
