"""The page's reward functions for other trainers, called as those trainers call them."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.pages import blocks
from tests.reward.test_items import PAYS
from tests.served import serving

PAGE = "vtune/reward/README.md"
RIGHT, WRONG = (f"<think>a</think><answer>{answer}</answer>" for answer in ("Bad Orb", "Worms"))
QUESTION = "Where does the red road of Ulm lead?"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The namespace of the page's file; its requests go to a separate service that rewards searches."""
    pays = tmp_path_factory.mktemp("trainers") / "pays.yaml"
    pays.write_text(yaml.safe_dump({"reward": PAYS.model_dump(mode="json")}))
    (source,) = (block for block in blocks(PAGE) if "def compute_score" in block)
    names: dict[str, Any] = {}
    exec(source, names)
    with serving("rewards", "--recipe", str(pays), "--workers", "1") as service:
        names["URL"] = f"{service.url}/score"
        yield names


def searched(output: str) -> list[dict[str, Any]]:
    """Messages in chat-template form, with a search that returned this."""
    asked = {"name": "text_search_tool", "arguments": {"query": "road"}}
    return [
        {
            "role": "assistant",
            "content": "<think>b</think>",
            "tool_calls": [{"type": "function", "function": asked}],
        },
        {"role": "tool", "name": asked["name"], "content": output},
        {"role": "assistant", "content": RIGHT},
    ]


def test_trl_gets_a_reward_per_text(page: dict[str, Any]) -> None:
    found = page["trl_reward"](
        [QUESTION] * 2, [RIGHT, WRONG], ground_truth=["Bad Orb"] * 2, trainer_state=None
    )
    assert found == pytest.approx([1.3, 0.3])


def test_trl_gets_a_reward_for_search_results(page: dict[str, Any]) -> None:
    prompts = [[{"role": "user", "content": QUESTION}]] * 3
    done = [searched("1. Ulm\nThe red road leads to Bad Orb."), searched("1. Trier\nA town.")]
    done.append(done[0][:1])
    found = page["trl_reward"](prompts, done, ground_truth=["Bad Orb"] * 3)
    assert found == pytest.approx([1.8, 1.425, 0.0])


def test_arguments_may_be_json_strings_as_from_endpoints(page: dict[str, Any]) -> None:
    messages = searched("1. Ulm\nIt leads to Bad Orb.")
    call = messages[0]["tool_calls"][0]["function"]
    as_object = page["trajectory"](messages)
    call["arguments"] = '{"query": "road"}'
    assert page["trajectory"](messages) == as_object


def test_verl_gets_a_reward_for_a_turn_but_none_for_a_conversation_as_text(page: dict[str, Any]) -> None:
    score = page["compute_score"]
    assert score("roads", RIGHT, "Bad Orb", extra_info={"question": QUESTION}) == pytest.approx(1.3)
    assert score("roads", WRONG, "Bad Orb") == pytest.approx(0.3)
    call = '<think>b</think><tool_call>{"name": "text_search_tool", "arguments": {}}</tool_call>'
    flat = f"{call}\nuser\n<tool_response>\nnothing\n</tool_response>\nassistant\n{RIGHT}"
    with pytest.raises(ValueError, match="send a `trajectory`"):
        score("roads", flat, "Bad Orb")


def test_swift_gets_a_reward_per_text(page: dict[str, Any]) -> None:
    found = page["Vtune"]()([RIGHT, WRONG], solution=["Bad Orb", "Worms"], messages=[[], []])
    assert found == pytest.approx([1.3, 1.3])


def test_an_unscorable_text_is_an_error_not_zero(page: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="ground truth"):
        page["compute_score"]("roads", RIGHT, "")


def test_a_failing_service_is_tried_three_times(
    page: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def scored(items: list[Any]) -> list[dict[str, Any]]:
        asked.append(items)
        known = {"status": 200, "reward": {"total": 0.5}}
        return [known if one == "a" or len(asked) > 2 else {"status": 500} for one in items]

    monkeypatch.setitem(page, "scored", scored)
    assert page["totals"](["a", "b"]) == [0.5, 0.5]
    assert asked == [["a", "b"], ["b"], ["b"]]
    monkeypatch.setitem(page, "scored", lambda items: [{"status": 500}] * len(items))
    with pytest.raises(RuntimeError, match="three times"):
        page["totals"](["a"])
