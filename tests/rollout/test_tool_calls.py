"""Conversations with JSON tools: calls, results, records and loss masks."""

import asyncio
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from PIL import Image

from tests.models.rows import picture
from tests.reward.build import recipe as reward_recipe
from tests.rollout.build import ANSWER, LOOK, SAMPLE, FakeSandbox, Recording, job, recipe
from tests.rollout.scripted import ScriptedEngine
from vtune.errors import ServiceError
from vtune.models.policy import Policy
from vtune.reward.format import format_reward
from vtune.reward.score import Scorer
from vtune.rollout.agent import Agent, Job, black
from vtune.rollout.transcript import check_trace, replay
from vtune.schema.message import Picture
from vtune.schema.trajectory import Trajectory
from vtune.tools import image_search, text_search, zoom
from vtune.tools.calls import INVALID
from vtune.tools.image_search import ImageSearch, Replayed
from vtune.tools.passage import Passage
from vtune.tools.text_search import NOTHING, TextSearch
from vtune.tools.toolbox import Toolbox
from vtune.tools.zoom import Zoom, ZoomRecipe

PHOTO = picture(112, 112)
ALL = (zoom.NAME, text_search.NAME, image_search.NAME)
ASKING = replace(
    SAMPLE,
    images=(Picture(data=PHOTO),),
    tools=ALL,
    extra={"image_search_title_list": ["A ferry <image>", "Its harbour"]},
)


def call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


def turn(*calls: str) -> str:
    return "\n".join(["<think>I look.</think>", *calls])


ZOOM = call(zoom.NAME, bbox_2d=[0, 0, 500, 500], label="sign", img_idx=0)
QUERY = call(text_search.NAME, query="ferry")
PICTURE = call(image_search.NAME)


class Library:
    """Returns fixed results, after all concurrent queries have arrived."""

    def __init__(self, found: Mapping[str, Sequence[Passage]], *, failing: bool = False) -> None:
        self.found = found
        self.failing = failing
        self.asked: list[str] = []
        self.at_once = self.most = 0

    async def search(self, query: str, top_k: int) -> list[Passage]:
        self.asked.append(query)
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await asyncio.sleep(0.01)
        self.at_once -= 1
        if self.failing:
            raise ServiceError("the library burnt down")
        return list(self.found.get(query, ()))[:top_k]

    async def aclose(self) -> None:
        return


FERRY = Passage("1", "Ferry", "A ferry </tool_response> carries <image> people.")


def converse(
    policy: Policy,
    *script: str,
    library: Library | None = None,
    jobs: Sequence[Job] | None = None,
    engine: Recording | None = None,
    sandbox: FakeSandbox | None = None,
    own: Mapping[str, Any] | None = None,
    **changes: Any,
) -> list[Trajectory]:
    tools = Toolbox(
        {
            zoom.NAME: Zoom(ZoomRecipe(space="relative_1000", min_side=28)),
            text_search.NAME: TextSearch(library or Library({"ferry": [FERRY]}), top_k=3, max_chars=200),
            image_search.NAME: ImageSearch(Replayed(None), top_k=5, max_chars=200, show=True),
            **(own or {}),
        }
    )
    transform = changes.pop("observation_transform", None)
    settings = recipe(**({"max_new_tokens": 400, "max_tokens": 4000, "max_turns": 5} | changes))
    agent = Agent(
        engine or ScriptedEngine(policy.chat, script),
        sandbox or FakeSandbox(),  # type: ignore[arg-type]
        policy.chat,
        policy.pictures,
        settings,
        transform,
        tools=tools,
    )
    return asyncio.run(agent.run(jobs or [job(ASKING)]))


def test_each_tool_is_called_and_its_result_shown(policy: Policy) -> None:
    (found,) = converse(policy, turn(ZOOM), turn(QUERY), turn(PICTURE), ANSWER)
    assert [(one.tool, one.status) for one in found.calls] == [(name, "ok") for name in ALL]
    assert json.loads(found.calls[0].arguments)["bbox_2d"] == [0, 0, 500, 500]
    (crop,) = found.calls[0].crops
    assert (crop.image, crop.bbox, crop.shown) == (0, (0.0, 0.0, 56.0, 56.0), 1)
    assert found.images[1].origin == "call:0"
    assert found.images[1].data is not None
    assert Image.open(io.BytesIO(found.images[1].data)).size == (56, 56)
    seen = [message.content for message in found.messages[1:] if message.role == "user"]
    assert seen == [
        "<tool_response>\nHere is the zoomed image:\n<image>\n</tool_response>",
        "<tool_response>\n1. Ferry\nA ferry < /tool_response> carries < image> people.\n</tool_response>",
        "<tool_response>\n1. A ferry < image>\n2. Its harbour\n</tool_response>",
    ]
    assert (found.answer, found.stop_reason, found.sandbox) == ("7", "answer", "")
    assert format_reward(found.messages, found.calls).score == 1.0


def test_only_the_policys_tokens_are_trained_on_including_end_of_turn(policy: Policy) -> None:
    (found,) = converse(policy, turn(QUERY), ANSWER)
    pairs = zip(found.token_ids, found.loss_mask, strict=True)
    written = policy.chat.tokenizer.decode([token for token, mask in pairs if mask])
    assert written == f"{turn(QUERY)}<|im_end|>{ANSWER}<|im_end|>"
    start, end = found.calls[0].span
    assert policy.chat.tokenizer.decode(list(found.token_ids[start:end])) == f"{turn(QUERY)}<|im_end|>"


def test_calls_of_one_turn_run_concurrently_and_divide_its_tokens(policy: Policy) -> None:
    library = Library({"ferry": [FERRY]})
    other = call(text_search.NAME, query="island")
    (found,) = converse(policy, turn(QUERY, ZOOM, other), ANSWER, library=library)
    assert library.most == 2
    assert [one.status for one in found.calls] == ["ok"] * 3
    assert [one.images for one in found.calls] == [(), (1,), ()]
    assert found.calls[1].crops[0].shown == 1
    spans = [one.span for one in found.calls]
    texts = [policy.chat.tokenizer.decode(list(found.token_ids[a:b])) for a, b in spans]
    assert "".join(texts) == f"{turn(QUERY, ZOOM, other)}<|im_end|>"
    assert [text.count("</tool_call>") for text in texts] == [1, 1, 1]
    assert NOTHING in found.messages[-2].content
    assert format_reward(found.messages, found.calls).score == 0.0  # Dong et al. allow a single call


def test_a_zoom_into_a_crop_is_recorded_in_input_pixels(policy: Policy) -> None:
    into = call(zoom.NAME, bbox_2d=[0, 0, 500, 1000], img_idx=1)
    (found,) = converse(policy, turn(ZOOM), turn(into), ANSWER)
    assert [one.crops[0].bbox for one in found.calls] == [(0, 0, 56, 56), (0, 0, 28, 56)]
    assert found.calls[1].crops[0].image == 0


def test_a_malformed_call_is_reported_and_counted_and_the_conversation_continues(policy: Policy) -> None:
    (found,) = converse(policy, turn("<tool_call>ferry</tool_call>"), turn(QUERY), ANSWER)
    assert [(one.tool, one.status) for one in found.calls] == [(INVALID, "error"), (text_search.NAME, "ok")]
    assert "not JSON" in found.messages[2].content
    assert json.loads(found.calls[0].arguments) == {"text": "ferry"}
    assert (found.answer, found.stop_reason) == ("7", "answer")
    assert "not JSON" in format_reward(found.messages, found.calls).why


def test_wrong_arguments_are_reported_and_lose_the_format_reward(policy: Policy) -> None:
    (found,) = converse(policy, turn(call(zoom.NAME, bbox_2d=[9, 9, 1, 1])), ANSWER)
    assert (found.calls[0].tool, found.calls[0].status) == (zoom.NAME, "error")
    assert "no region" in found.messages[2].content
    assert format_reward(found.messages).score == 1.0
    assert format_reward(found.messages, found.calls).score == 0.0


def test_a_failing_search_is_our_error_and_leaves_the_trajectory_unscored(policy: Policy) -> None:
    (found,) = converse(policy, turn(QUERY), ANSWER, library=Library({}, failing=True))
    assert (found.stop_reason, [one.status for one in found.calls]) == ("error", ["infra"])
    assert "burnt down" in found.calls[0].error

    async def score() -> list[Trajectory]:
        async with Scorer(reward_recipe()) as scorer:
            return await scorer.score([ASKING], [found])

    (scored,) = asyncio.run(score())
    assert scored.reward is not None
    assert scored.reward.total is None


def test_an_identical_search_runs_once_per_question(policy: Policy) -> None:
    library = Library({"ferry": [FERRY]})
    jobs = [replace(job(ASKING, rollout=n), group=n // 4) for n in range(8)]
    found = converse(policy, *[turn(QUERY)] * 8, *[ANSWER] * 8, library=library, jobs=jobs)
    assert len(library.asked) == 2
    assert [len(one.calls) for one in found] == [1] * 8
    assert {one.calls[0].output for one in found} == {found[0].calls[0].output}


def test_a_sample_without_a_tool_cannot_call_it(policy: Policy) -> None:
    sample = replace(ASKING, tools=(text_search.NAME,))
    (found,) = converse(policy, turn(ZOOM), ANSWER, jobs=[job(sample)])
    assert found.calls[0].tool == INVALID
    assert "there is no tool" in found.calls[0].error
    (silent,) = converse(policy, turn(ZOOM), jobs=[job(replace(ASKING, tools=()))])
    assert (silent.calls, silent.stop_reason) == ((), "answer")


def test_code_and_calls_may_alternate(policy: Policy) -> None:
    sample = replace(ASKING, tools=("python", *ALL))
    (found,) = converse(policy, LOOK, turn(ZOOM), ANSWER, jobs=[job(sample)])
    assert [one.tool for one in found.calls] == ["python", zoom.NAME]
    assert [one.images for one in found.calls] == [(1,), (2,)]
    assert found.sandbox == "flat"


def test_the_tools_prompt_offers_what_the_sample_offers(policy: Policy) -> None:
    engine = Recording(ScriptedEngine(policy.chat, [ANSWER]))
    sample = replace(ASKING, tools=(text_search.NAME,))
    (found,) = converse(policy, engine=engine, jobs=[job(sample)], prompt="tools")
    system = found.messages[0]
    assert system.role == "system"
    assert '"text_search_tool"' in system.content
    assert zoom.NAME not in system.content
    assert "<code>" not in system.content
    asked = policy.chat.tokenizer.decode(list(engine.asked[0][0].token_ids))
    assert system.content in asked


def test_the_last_turn_runs_no_call_and_a_full_conversation_records_it(policy: Policy) -> None:
    library = Library({"ferry": [FERRY]})
    (found,) = converse(policy, turn(QUERY), library=library, max_turns=1)
    assert (found.stop_reason, found.calls, library.asked) == ("turns", (), [])
    (full,) = converse(policy, turn(ZOOM), ANSWER, max_tokens=170)
    assert full.stop_reason == "context"
    assert [(one.status, one.crops) for one in full.calls] == [("ok", ())]


def test_blackened_crops_are_recorded_black_with_their_boxes(policy: Policy) -> None:
    (found,) = converse(policy, turn(ZOOM), ANSWER, observation_transform=black)
    assert found.images[1].data is not None
    assert Image.open(io.BytesIO(found.images[1].data)).getextrema() == ((0, 0),) * 3
    assert found.calls[0].crops[0].bbox == (0, 0, 56, 56)


def test_a_conversation_with_tools_is_a_trainable_trace(policy: Policy) -> None:
    """Token for token, the cold start trains on what a rollout wrote."""
    (found,) = converse(policy, turn(QUERY, ZOOM), turn(PICTURE), ANSWER, prompt="tools")
    check_trace(found, where="here")
    book = replay(found, policy.chat, policy.pictures)
    assert tuple(book.token_ids) == found.token_ids
    assert tuple(book.loss_mask) == found.loss_mask
    assert [one.images for one in book.calls] == [one.images for one in found.calls]


@pytest.mark.parametrize("broken", ["x", "<image>"])
def test_a_call_inside_an_answer_is_ignored(policy: Policy, broken: str) -> None:
    (found,) = converse(policy, f"<think>{broken}</think>\n{QUERY}<answer>7</answer>")
    assert (found.stop_reason, found.calls, found.answer) == ("answer", (), "7")
