"""Requests of other programs to the reward service: a missing or misspelt key is refused, not a miss."""

import copy
from typing import Any

import pytest

from tests.reward.build import LEVELS, recipe
from tests.reward.test_service import asked
from vtune.errors import DataError
from vtune.reward.items import read_item

CALL = '<think>a</think><tool_call>{"name": "text_search_tool", "arguments": {"query": "x"}}</tool_call>'
FOUND = "1. Ulm\nThe red road leads to Bad Orb."
ANSWER = "<think>b</think><answer>Bad Orb</answer>"
TURNS = [
    {"role": "assistant", "content": CALL},
    {"role": "user", "content": f"<tool_response>\n{FOUND}\n</tool_response>"},
    {"role": "assistant", "content": ANSWER},
]
SAMPLE = {
    "data_source": "roads",
    "prompt": [{"role": "user", "content": "Where does the red road of Ulm lead?"}],
    "reward_model": {"verifier": "exact", "ground_truth": "Bad Orb"},
    "ability": "search",
    "tools": ["text_search_tool"],
    "extra_info": {"id": "a"},
}
SEARCH = {"tool": "text_search_tool", "arguments": '{"query": "x"}', "status": "ok", "output": FOUND}
CROP = {"image": 0, "bbox_2d": [0, 0, 9, 9], "shown": None}
PAYS = recipe(evidence=LEVELS.model_copy(update={"search_abilities": ("search",), "judges": ("passages",)}))


def item(*calls: dict[str, Any], **trajectory: Any) -> dict[str, Any]:
    done = {"messages": TURNS, "calls": list(calls)} | trajectory
    return copy.deepcopy({"sample": SAMPLE, "trajectory": done})


def without(row: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != name}


def test_a_search_sent_by_another_program_is_rewarded() -> None:
    (answer,) = asked(("POST", "/score", item(SEARCH)), given=PAYS)
    assert (answer.status_code, answer.json()["tool_scores"]) == (200, [1.0])


@pytest.mark.parametrize(
    ("wrong", "what", "fix"),
    [
        (
            item(without(SEARCH, "output") | {"outputs": FOUND}),
            "unknown key `calls.outputs`",
            "did you mean `output`",
        ),
        (item(without(SEARCH, "output")), "without its `output`", '""'),
        (
            item(SEARCH | {"crops": [without(CROP, "bbox_2d") | {"bbox": [0, 0, 9, 9]}]}),
            "unknown key `calls.crops.bbox`",
            "did you mean `bbox_2d`",
        ),
        (item(SEARCH | {"crops": [without(CROP, "shown")]}), "a crop came without `shown`", "null"),
        (
            item(messages=[{"role": "assistant", "contents": ANSWER}]),
            "unknown key `messages.contents`",
            "`content`",
        ),
        (
            item(SEARCH, messages=[TURNS[0] | {"tool_calls": [{"id": "1"}]}, *TURNS[1:]]),
            "unknown key `messages.tool_calls`",
            "`calls`",
        ),
        (
            item(messages=[{"role": "assistant", "content": ANSWER, "reasoning_content": "b"}]),
            "unknown key `messages.reasoning_content`",
            "<think>",
        ),
        (item(images=[{"bytes": "", "paths": "a.png"}]), "unknown key `images.paths`", "`path`"),
    ],
)
def test_an_unknown_key_at_any_depth_is_named(wrong: dict[str, Any], what: str, fix: str) -> None:
    with pytest.raises(DataError) as refused:
        read_item(wrong)
    assert what in refused.value.what
    assert fix in refused.value.fix


@pytest.mark.parametrize(
    ("sample", "messages"),
    [
        (SAMPLE, TURNS),
        (SAMPLE, TURNS[:2]),
        (SAMPLE | {"tools": []}, TURNS),
        (SAMPLE, [TURNS[0] | {"content": "<search>x</search>"}, TURNS[2]]),
        (SAMPLE | {"tools": []}, [TURNS[0] | {"content": "<code>look()</code>"}, TURNS[2]]),
    ],
)
@pytest.mark.parametrize("calls", [{}, {"calls": None}])
def test_a_conversation_with_tool_responses_needs_its_calls(
    sample: dict[str, Any], messages: list[dict[str, Any]], calls: dict[str, Any]
) -> None:
    sent = {"sample": sample, "trajectory": {"messages": messages}}
    with pytest.raises(DataError, match="`calls`") as refused:
        read_item({**sent, "trajectory": sent["trajectory"] | calls})
    assert "[] where no tool ran" in refused.value.fix
    _, done = read_item({**sent, "trajectory": {"messages": messages, "calls": []}})
    assert done.calls == ()


@pytest.mark.parametrize(
    "between", ["\nuser\n", "<|im_end|>\n<|im_start|>user\n", "<|im_end|>\n<|im_start|>tool\n"]
)
def test_the_text_of_a_conversation_is_not_a_reply(between: str) -> None:
    text = f"{CALL}{between}{TURNS[1]['content']}\nassistant\n{ANSWER}"
    for sent in ({"reply": text}, {"trajectory": {"messages": [{"role": "assistant", "content": text}]}}):
        with pytest.raises(DataError, match="continues after the answer of a tool") as refused:
            read_item({"sample": SAMPLE, **sent})
        assert "`trajectory`" in refused.value.fix


def test_tool_responses_made_up_by_the_policy_are_accepted() -> None:
    made_up = [CALL, f"{CALL}\n{TURNS[1]['content']}\n{ANSWER}", f"I could write <tool_call>.{ANSWER}"]
    for text in made_up:
        assert read_item({"sample": SAMPLE, "reply": text})[1].reply == text
        sent = {"messages": [{"role": "assistant", "content": text}]}
        assert read_item({"sample": SAMPLE, "trajectory": sent})[1].reply == text


def test_a_span_is_read_only_together_with_tokens() -> None:
    for span in ({}, {"span": None}, {"span": [7, 19]}):
        assert read_item(item(SEARCH | span))[1].calls[0].span == (0, 0)
    tokens = {"token_ids": [1, 2], "loss_mask": [True, True], "logprobs": [-1.0, -1.0]}
    assert read_item(item(SEARCH | {"span": [0, 2]}, **tokens))[1].calls[0].span == (0, 2)
    with pytest.raises(DataError, match="outside the 2 tokens"):
        read_item(item(SEARCH | {"span": [7, 19]}, **tokens))


def test_a_search_under_another_name_is_not_a_miss() -> None:
    (answer,) = asked(("POST", "/score", item(SEARCH | {"tool": "search"})), given=PAYS)
    assert (answer.status_code, answer.json()["tool_scores"]) == (422, [None])
    assert "the sample offers no tool 'search'" in answer.json()["error"]["what"]
    assert "`text_search_tool`" in answer.json()["error"]["fix"]


def test_code_for_a_search_question_earns_nothing() -> None:
    code = {"tool": "python", "arguments": "{}", "status": "ok", "output": FOUND}
    (answer,) = asked(("POST", "/score", item(code)), given=PAYS)
    assert answer.json()["tool_scores"] == [0.0]


def test_a_request_that_needs_a_missing_judge_is_422() -> None:
    row = SAMPLE | {"reward_model": {"verifier": "judge", "ground_truth": "A red car"}}
    request = {"sample": row, "reply": "<answer>red automobile</answer>"}
    (answer,) = asked(("POST", "/score", request), given=PAYS)
    assert answer.status_code == 422
    assert "this needs a judge" in answer.json()["error"]["what"]
    assert "set `reward.judge`" in answer.json()["error"]["fix"]
    assert "silent" not in answer.json()
