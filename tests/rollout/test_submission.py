from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.models.rows import ragged
from vtune.errors import RunFailed
from vtune.models.pictures import Pixels
from vtune.models.policy import Policy
from vtune.rollout.engine import Request, Sampling
from vtune.rollout.submission import (
    MOST,
    Answer,
    Kept,
    Submissions,
    collapsed,
    label_of,
    seed_of,
    version_of,
)

IMAGE = 9


def pixels(tokens: int) -> Pixels:
    return Pixels(torch.zeros(4 * tokens, 1), (1, 2, 2 * tokens), tokens, "", torch.Tensor.float)


@given(st.lists(st.tuples(st.lists(st.integers(0, 8), max_size=5), st.integers(1, 4)), max_size=4))
def test_a_prompt_keeps_its_text_and_one_placeholder_per_picture(turns: list[tuple[list[int], int]]) -> None:
    """Adjacent pictures' placeholders look like a single run."""
    expanded = [token for words, count in turns for token in [*words, *[IMAGE] * count]]
    short = collapsed(expanded, [pixels(count) for _, count in turns], image_id=IMAGE)
    assert short == [token for words, _ in turns for token in [*words, IMAGE]]


@pytest.mark.parametrize(
    ("tokens", "pictures"),
    [([1, IMAGE, IMAGE, 2], [3]), ([1, IMAGE], []), ([1, 2], [1]), ([IMAGE], [2]), ([IMAGE, IMAGE], [1])],
    ids=["run too short", "no picture", "no placeholder", "cut off", "run too long"],
)
def test_placeholders_without_a_picture_are_an_error(tokens: list[int], pictures: list[int]) -> None:
    with pytest.raises(RunFailed):
        collapsed(tokens, [pixels(count) for count in pictures], image_id=IMAGE)


def request(policy: Policy) -> Request:
    row = ragged(policy)[0]
    sampling = Sampling(temperature=1.0, max_new_tokens=8, stop=("</code>",))
    return Request(token_ids=row.token_ids, pixels=row.pixels, sampling=sampling, key=(0, 0, 3, 1, 0))


def answer(policy: Policy, **changes: object) -> Answer:
    given = Answer(
        prompt=list(request(policy).token_ids),
        token_ids=[4, 5, 6],
        logprobs=[-1.0, -2.0, -3.0],
        finish="stop",
        stop="</code>",
        spans=[(label_of(3), 2), (label_of(4), 3)],
    )
    return replace(given, **changes)  # type: ignore[arg-type]


def test_an_answer_keeps_tokens_logprobs_and_the_weight_version_of_each(policy: Policy) -> None:
    found = Submissions(policy).completion(request(policy), answer(policy))
    assert (found.token_ids, found.logprobs) == ((4, 5, 6), (-1.0, -2.0, -3.0))
    assert (found.finish, found.weight_versions) == ("stop", (3, 3, 4))


def test_the_end_of_a_turn_is_distinguished_from_a_stop_text(policy: Policy) -> None:
    found = Submissions(policy).completion(request(policy), answer(policy, stop=policy.chat.end_id))
    assert found.finish == "end"
    assert Submissions(policy).completion(request(policy), answer(policy, finish="length")).finish == "length"


@pytest.mark.parametrize("finish", ["error", "abort"])
def test_a_turn_aborted_by_vllm_is_not_a_turn_cut_at_its_limit(policy: Policy, finish: str) -> None:
    given = answer(policy, finish=finish, token_ids=[], logprobs=[], spans=[])
    with pytest.raises(RunFailed, match=rf"aborted a turn \({finish}\) after 0 tokens"):
        Submissions(policy).completion(request(policy), given)


@pytest.mark.parametrize(
    "changes",
    [{"prompt": [1, 2]}, {"logprobs": [-1.0]}, {"spans": []}],
    ids=["another prompt", "a log-probability is missing", "weights unknown"],
)
def test_an_answer_inconsistent_with_its_request_is_an_error(
    policy: Policy, changes: dict[str, object]
) -> None:
    with pytest.raises(RunFailed):
        Submissions(policy).completion(request(policy), answer(policy, **changes))


def test_tokens_banned_in_training_are_banned_in_vllm(each_policy: Policy) -> None:
    bias = Submissions(each_policy).sampling(request(each_policy))["logit_bias"]
    columns = each_policy.model.lm_head.weight.shape[0]
    words = len(each_policy.chat.tokenizer)
    assert words < columns, "nothing pads the matrix: the test proves nothing"
    assert set(bias) == {*each_policy.chat.banned_ids, *range(words, columns)}


def vocabulary(policy: Policy, words: int, columns: int) -> Policy:
    """The policy with these numbers of tokenizer words and matrix columns."""
    config = SimpleNamespace(get_text_config=lambda: SimpleNamespace(vocab_size=columns))
    chat: Any = SimpleNamespace(banned_ids=(1, 2), tokenizer=range(words), image_id=IMAGE, end_id=0)
    return replace(policy, chat=chat, model=SimpleNamespace(config=config))


def test_a_request_bans_or_allows_at_most_as_many_tokens_as_vllm_supports(policy: Policy) -> None:
    """More would crash vLLM's GPU runner; published shapes with a small tokenizer have 150,000 to ban."""
    published = Submissions(vocabulary(policy, 151_665, 152_064))
    assert len(published.sampling(request(policy))["logit_bias"]) == 2 + 152_064 - 151_665 <= MOST
    small = Submissions(vocabulary(policy, 391, 152_064)).sampling(request(policy))
    assert "logit_bias" not in small
    assert small["allowed_token_ids"] == [0, *range(3, 391)]
    with pytest.raises(RunFailed, match=r"2002 of the model's 4000 tokens .* vLLM bans at most 1024"):
        Submissions(vocabulary(policy, 2000, 4000))


def test_text_is_decoded_only_if_a_stop_text_is_needed(policy: Policy) -> None:
    asked = request(policy)
    plain = replace(asked, sampling=replace(asked.sampling, stop=()))
    submissions = Submissions(policy)
    assert submissions.sampling(asked)["detokenize"] is True
    assert submissions.sampling(plain)["detokenize"] is False


def test_seeds_differ_by_conversation_and_turn() -> None:
    keys = [(0, 0, group, rollout, turn) for group in range(4) for rollout in range(4) for turn in range(4)]
    assert len({seed_of(key) for key in keys}) == len(keys)
    assert all(0 <= seed_of(key) < 2**63 for key in keys)


def test_foreign_weight_labels_name_no_version() -> None:
    assert [version_of(label) for label in (label_of(0), label_of(12), "default", "vtune-x", "12")] == [
        0, 12, -1, -1, -1,
    ]  # fmt: skip


def test_the_most_recently_used_pictures_are_kept_within_the_limit() -> None:
    first, second, third = pixels(1), pixels(1), pixels(1)
    one = first.levels.nbytes + 10
    kept: Kept[str] = Kept(2 * one, lambda made: 10)
    kept.put(first, "a")
    kept.put(second, "b")
    assert kept.get(first) == "a"
    kept.put(third, "c")
    assert (kept.get(first), kept.get(second), kept.get(third)) == ("a", None, "c")


def test_a_picture_above_the_limit_is_kept_while_in_use() -> None:
    kept: Kept[str] = Kept(1, len)
    small, large = pixels(1), pixels(4)
    kept.put(small, "a")
    kept.put(large, "b")
    assert (kept.get(small), kept.get(large)) == (None, "b")
