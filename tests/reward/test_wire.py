import asyncio
import dataclasses
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from tests.reward.build import LEVELS, TARGET, looks, recipe, sample
from tests.reward.test_score import NOWHERE
from tests.schema.records import trajectories
from vtune.errors import DataError, RecipeError, ServiceError
from vtune.judge.prompts import LONGEST_PRINTED, readable
from vtune.reward.evidence_judge import EVIDENCE
from vtune.reward.items import read_item
from vtune.reward.wire import item_of, recipe_of, scores_of, settings_of, with_scores
from vtune.schema.message import Picture
from vtune.schema.reward import Reward
from vtune.schema.trajectory import Trajectory


def sent(what: Any) -> Any:
    """The item as it arrives at the service."""
    return json.loads(json.dumps(what, allow_nan=False))


@given(trajectories())
def test_everything_needed_for_scoring_is_sent(trajectory: Trajectory) -> None:
    question = sample(TARGET, id=trajectory.sample_id)
    asked, done = read_item(sent(item_of(question, trajectory)))
    for name in ("id", "source", "ability", "question", "ground_truth", "verifier", "verifier_parm"):
        assert getattr(asked, name) == getattr(question, name), name
    for name in ("evidence", "choices", "accuracy_ratio", "format_ratio", "tool_ratio"):
        assert getattr(asked, name) == getattr(question, name), name
    assert done.reply == trajectory.reply
    assert done.stop_reason == trajectory.stop_reason
    if trajectory.calls:
        assert [(p.data, p.origin) for p in done.images] == [(p.data, p.origin) for p in trajectory.images]
    for here, there in zip(trajectory.calls, done.calls, strict=True):
        for name in ("tool", "arguments", "status", "error", "images", "crops"):
            assert getattr(there, name) == getattr(here, name), name


@pytest.mark.parametrize("name", sorted(EVIDENCE))
def test_an_evidence_judge_gives_the_same_result_in_the_service(name: str) -> None:
    part = EVIDENCE[name]
    if part.example is None or part.asks_model:
        pytest.skip("tried with pictures, which travel, or asks a model what it asks here")
    example, judge = part.example(), part.opened(LEVELS, None)
    for done in (example.gold, example.nothing):
        here = asyncio.run(judge.judge(example.sample, done, 0))
        there = asyncio.run(judge.judge(*read_item(sent(item_of(example.sample, done))), 0))
        assert there == here
    extra = {key: ["kept"] for key in part.reads} | {"other": 1}
    asked, _ = read_item(sent(item_of(replace(example.sample, extra=extra), example.gold)))
    assert {key: asked.extra.get(key) for key in extra} == extra | {"other": None}


def test_a_question_is_sent_with_pictures_if_its_grading_shows_them() -> None:
    asked = sample(verifier="judge", verifier_parm={"grading": "mars"})
    assert len(asked.images) == 1
    _, done = read_item(sent(item_of(asked, looks())))
    assert [picture.data for picture in done.images] == [looks().images[0].data]


def test_pictures_are_sent_only_with_calls_and_never_those_of_a_sample() -> None:
    assert item_of(sample(), looks())["trajectory"]["images"] == []
    item = item_of(sample(), looks(TARGET))
    assert all(len(picture["bytes"]) > 100 for picture in item["trajectory"]["images"])
    assert item["sample"]["images"] == [None]


def test_a_picture_on_disk_is_sent_as_bytes_and_a_missing_one_as_null(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"pixels")
    images = (Picture(path=str(tmp_path / "a.png")), Picture(path=str(tmp_path / "lost.png")))
    _, done = read_item(sent(item_of(sample(), looks("error", images=images))))
    assert [picture.data for picture in done.images] == [b"pixels", b""]


def test_a_path_in_a_request_is_never_opened(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    item = sent(item_of(sample(), looks("error")))
    item["sample"]["images"] = [{"path": str(secret)}]
    asked, _ = read_item(item)
    assert [(picture.data, picture.path) for picture in asked.images] == [(b"", None)]
    item["trajectory"]["images"] = [{"path": str(secret)}]
    with pytest.raises(DataError, match="without its bytes"):
        read_item(item)


def test_a_bare_reply_is_a_trajectory_of_one_turn() -> None:
    row = sent(item_of(sample(), looks()))["sample"]
    _, done = read_item({"sample": row, "reply": "<answer>B</answer>"})
    assert (done.reply, done.calls) == ("<answer>B</answer>", ())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sample": None}, "needs a `sample`"),
        ({"reply": "B"}, "either a `reply` or a `trajectory`"),
        ({"trajectory": None}, "either a `reply` or a `trajectory`"),
        (
            {"trajectory": None, "reply": [{"role": "assistant", "content": "B"}]},
            "`reply` is list, not a text",
        ),
        ({"trajectory": None, "reply": 7}, "`reply` is int, not a text"),
        ({"repyl": "B"}, "unknown key `repyl`"),
        ({"trajectory": {"messages": [], "sample_id": "other"}}, "answers 'other'"),
        ({"trajectory": {"messages": [], "images": [{"bytes": "?"}]}}, "not base64"),
        ({"trajectory": {"messages": [], "images": [{"bytes": "\x80"}]}}, "not base64"),
        ({"trajectory": {"messages": [], "images": 3}}, "not a list"),
        ({"trajectory": {"messages": [], "stop_reason": "tired"}}, "unknown value 'tired'"),
        ({"trajectory": {}}, "without `messages`"),
        ({"trajectory": {"turns": []}}, "without `messages`"),
        ({"trajectory": {"messages": [], "call": []}}, "(?s)unknown key `call`.*did you mean `calls`"),
    ],
)
def test_an_invalid_item_is_refused_with_its_reason(change: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_item(sent(item_of(sample(), looks()) | change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"abilty": "count"}, r"unknown key `abilty`.*did you mean `ability`\? Your own values.*extra_info"),
        ({"anwser": "B"}, "unknown key `anwser`.*did you mean `reward_model.answer`"),
        ({"id": "a/1"}, "unknown key `id`.*did you mean `extra_info.id`"),
        ({"weather": "fine"}, "unknown key `weather`.*known: ability, choices, data_source.*extra_info"),
        (
            {"reward_model": {"verifier": "exact", "ground_truth": "B", "anwser": "B"}},
            "unknown key `reward_model.anwser`.*did you mean `reward_model.answer`",
        ),
        ({"evidence": [{"box_2d": [0, 0, 9, 9]}]}, "`evidence.box_2d`.*did you mean `evidence.bbox_2d`"),
    ],
)
def test_an_unknown_key_of_a_sample_gets_a_suggestion(change: dict[str, Any], message: str) -> None:
    item = sent(item_of(sample(), looks()))
    with pytest.raises(DataError) as refused:
        read_item(item | {"sample": item["sample"] | change})
    assert re.search(message, f"{refused.value.what} {refused.value.fix}")


def test_additional_columns_of_other_layouts_are_not_unknown_keys() -> None:
    item = sent(item_of(sample(), looks()))
    row = item["sample"] | {"empty": None, "extra_info": {"anything": [1], "id": "a/1"}}
    row["reward_model"] |= {"style": "rule", "verifier_parm": {"mine": 1}, "rubric": None}
    asked, _ = read_item({"sample": row, "reply": "B"})
    assert (asked.id, asked.verifier_parm) == ("a/1", {"mine": 1})


def test_settings_restore_the_recipe_without_keys_that_do_not_affect_scores() -> None:
    whole = recipe(judge=NOWHERE, service=["http://a:1"], tool_gated=True)
    found = recipe_of(sent(settings_of(whole)), NOWHERE)
    assert found == whole.model_copy(update={"service": None, "max_unscored": 1.0})
    assert "127.0.0.1" not in json.dumps(settings_of(whole))


def test_a_service_asks_only_its_own_judge() -> None:
    assert recipe_of(settings_of(recipe()), NOWHERE).judge is None
    elsewhere = NOWHERE.model_copy(update={"base_url": "http://10.0.0.1/v1", "api_key_env": "HOME"})
    assert recipe_of(recipe(judge=elsewhere).model_dump(mode="json"), NOWHERE).judge == NOWHERE
    for judge in (None, NOWHERE.model_copy(update={"model": "other"})):
        with pytest.raises(RecipeError, match="judge is"):
            recipe_of(settings_of(recipe(judge=NOWHERE)), judge)


@pytest.mark.parametrize("change", [{"tool": 2}, {"tool": None}, {"surprise": 1}])
def test_settings_are_read_as_strictly_as_a_recipe(change: dict[str, Any]) -> None:
    with pytest.raises(RecipeError, match=f"reward.{next(iter(change))}"):
        recipe_of(settings_of(recipe()) | change, None)


def test_scores_are_returned_exactly() -> None:
    reward = Reward(total=0.1 + 0.2, accuracy=1 / 3, format=None, tool=-0.5, consistency=1 / 7, why="“so”")
    scored = dataclasses.replace(looks(TARGET, TARGET), reward=reward, tool_scores=(0.25, None))
    flagged = tuple(dataclasses.replace(call, flags=("whole_image",)) for call in scored.calls)
    scored = dataclasses.replace(scored, calls=flagged)
    assert with_scores(looks(TARGET, TARGET), sent(scores_of(scored))) == scored


@pytest.mark.parametrize("broken", [{}, {"reward": None}, {"reward": {"total": 1.0}}, {"tool_scores": [1.0]}])
def test_an_answer_without_valid_scores_is_a_service_error(broken: dict[str, Any]) -> None:
    reward = Reward(total=1.0, accuracy=1.0, format=1.0, tool=0.0, why="")
    scores = scores_of(dataclasses.replace(looks(), reward=reward))
    with pytest.raises(ServiceError):
        with_scores(looks(), (scores | broken) if broken else {})


def test_only_output_that_a_judge_may_read_is_sent() -> None:
    done = looks(TARGET)
    printed = "mean \x1b[1m17\na.png\n" + "x" * 5000
    done = dataclasses.replace(done, calls=(dataclasses.replace(done.calls[0], output=printed),))
    _, there = read_item(sent(item_of(sample(), done)))
    assert there.calls[0].output == readable(printed)
    assert there.calls[0].output.startswith("mean \\x1b[1m17\nxxx")
    assert len(there.calls[0].output) == LONGEST_PRINTED
