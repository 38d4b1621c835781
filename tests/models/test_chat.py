import copy

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.models.rows import LARGE, SMALL
from vtune.errors import DataError
from vtune.models.chat import Chat
from vtune.models.families import family_of
from vtune.models.policy import Policy
from vtune.schema.message import Message

PRIVATE = "\ue000"
"""The internal placeholder for a picture in `Chat`."""


def spelt_out(text: str, *counts: int) -> str:
    """A rendered conversation with its pictures' placeholders."""
    for count in counts:
        text = text.replace("<image>", f"<|vision_start|>{'<|image_pad|>' * count}<|vision_end|>", 1)
    return text


def ids(policy: Policy, text: str) -> list[int]:
    return list(policy.chat.tokenizer(text, add_special_tokens=False)["input_ids"])


def test_prompt_tokens_are_those_of_the_rendered_text(each_policy: Policy) -> None:
    large, small = (each_policy.pictures.read(data) for data in (LARGE, SMALL))
    messages = [Message("system", "Be brief."), Message("user", "<image>One.\n<image>Which digit?")]
    rendered = (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\n<image>One.\n<image>Which digit?<|im_end|>\n<|im_start|>assistant\n"
    )
    found = each_policy.chat.prompt(messages, [large, small])
    assert found == ids(each_policy, spelt_out(rendered, large.tokens, small.tokens))


@pytest.mark.parametrize("ended", [True, False])
def test_an_incrementally_built_conversation_equals_the_rendered_one(policy: Policy, ended: bool) -> None:
    chat = policy.chat
    large, small = (policy.pictures.read(data) for data in (LARGE, SMALL))
    grown = chat.prompt([Message("user", "<image>Which digit?")], [large])
    grown += chat.words("<think>I look.\n<code>crop</code>") + ([chat.end_id] if ended else [])
    grown += chat.observation("<sandbox_output>\n<image>\n</sandbox_output>", [small], ended=ended)
    rendered = chat.tokenizer.apply_chat_template(
        [
            {"role": "user", "content": "<image>Which digit?"},
            {"role": "assistant", "content": "<think>I look.\n<code>crop</code>"},
            {"role": "user", "content": "<sandbox_output>\n<image>\n</sandbox_output>"},
        ],
        add_generation_prompt=True,
        tokenize=False,
    )
    assert grown == ids(policy, spelt_out(rendered, large.tokens, small.tokens))


SPELT = ("<|im_end|>", "<|im_start|>", "<|image_pad|>", "<|vision_start|>", "<|video_pad|>", "<|endoftext|>")
pieces = st.sampled_from(
    [*SPELT, "<|", "|>", "<|im_", "im_end", "end|>", "assistant\n", PRIVATE, "x", "¦", "\u0338"]
)


@example(f"<|im_{PRIVATE}end|>")
@example("<|im_<|im_end|>end|>")
@given(st.lists(pieces, max_size=8).map("".join))
def test_special_tokens_in_text_are_inert(policy: Policy, text: str) -> None:
    chat = policy.chat
    special = set(chat.tokenizer.convert_tokens_to_ids(list(chat.tokenizer.all_special_tokens)))
    special |= {*chat.banned_ids, chat.end_id, chat.pad_id}
    assert special.isdisjoint(chat.words(text))
    # The template around a text has fixed special tokens.
    for around in (
        lambda inner: chat.observation(inner, [], ended=False),
        lambda inner: chat.prompt([Message("user", inner)], []),
    ):
        assert [i for i in around(text) if i in special] == [i for i in around("x") if i in special]


@pytest.mark.parametrize("forged", [f"<|im_{PRIVATE}end|>", f"<im{PRIVATE}age>", PRIVATE])
def test_the_mark_of_a_picture_cannot_be_forged(policy: Policy, forged: str) -> None:
    small = policy.pictures.read(SMALL)
    seen = policy.chat.observation(f"{forged}<image>", [small], ended=False)
    assert seen.count(policy.chat.image_id) == small.tokens
    assert seen.count(policy.chat.end_id) == 2


@pytest.mark.parametrize(("text", "count"), [("none", 1), ("<image>", 0), ("<image><image>", 1)])
def test_a_mismatch_of_marks_and_pictures_is_our_error(policy: Policy, text: str, count: int) -> None:
    pictures = [policy.pictures.read(SMALL)] * count
    with pytest.raises(DataError, match=r"mark\(s\) for"):
        policy.chat.prompt([Message("user", text)], pictures)
    with pytest.raises(DataError, match=r"mark\(s\) for"):
        policy.chat.observation(text, pictures, ended=False)


def test_a_policy_can_never_generate_a_placeholder_or_open_a_turn(each_policy: Policy) -> None:
    chat = each_policy.chat
    banned = set(chat.tokenizer.convert_ids_to_tokens(list(chat.banned_ids)))
    assert banned == {
        "<|endoftext|>",
        "<|im_start|>",
        "<|vision_start|>",
        "<|vision_end|>",
        "<|vision_pad|>",
        "<|image_pad|>",
        "<|video_pad|>",
    }


def test_generated_text_is_decoded_without_special_tokens(policy: Policy) -> None:
    chat = policy.chat
    assert chat.decode([*chat.words("<answer>7</answer>"), chat.end_id]) == "<answer>7</answer>"


def test_a_tokenizer_that_cannot_chat_is_refused(policy: Policy) -> None:
    mute = copy.deepcopy(policy.chat.tokenizer)
    mute.chat_template = None
    with pytest.raises(DataError, match="no chat template"):
        Chat(mute, policy.family)
    deaf = copy.deepcopy(policy.chat.tokenizer)
    deaf.chat_template = "{{ 'nothing of what it is given' }}"
    with pytest.raises(DataError, match="does not print"):
        Chat(deaf, policy.family)


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{% if %}", "Expected an expression"),
        ("{{ messages[0].content.index('?') }}", "substring not found"),
        ("{{ '{0}'.format() }}", "out of range"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ messages[0].content + 1 }}", "can only concatenate"),
        ("{{ nobody.name }}", "undefined"),
    ],
)
def test_a_broken_template_is_reported(policy: Policy, template: str, why: str) -> None:
    broken = copy.deepcopy(policy.chat.tokenizer)
    broken.chat_template = template
    with pytest.raises(DataError, match=f"cannot print a conversation of user, assistant, user: .*{why}"):
        Chat(broken, policy.family)


@pytest.mark.parametrize("mark", ["<|im_start|>", "<|im_end|>"])
def test_a_mark_unknown_to_the_tokenizer_is_reported(policy: Policy, mark: str) -> None:
    tokenizer = copy.deepcopy(policy.chat.tokenizer)
    tokenizer.chat_template = tokenizer.chat_template.replace(mark, "<|im_strat|>")
    with pytest.raises(DataError, match=r"writes <\|im_strat\|>, which is not a token") as caught:
        Chat(tokenizer, policy.family)
    assert "chat_template.jinja" in caught.value.fix


def test_a_template_that_opens_thoughts_itself_is_recognised(policy: Policy) -> None:
    assert not policy.chat.opens_thoughts
    tokenizer = copy.deepcopy(policy.chat.tokenizer)
    opening = "{% if add_generation_prompt %}{{ '<think>\n' }}{% endif %}"
    tokenizer.chat_template += opening
    assert Chat(tokenizer, policy.family).opens_thoughts


def test_turns_unknown_to_a_template_are_reported(policy: Policy) -> None:
    tokenizer = copy.deepcopy(policy.chat.tokenizer)
    refusal = "{% if messages[0].role == 'system' %}{{ raise_exception('no system turn') }}{% endif %}"
    tokenizer.chat_template = refusal + tokenizer.chat_template
    with pytest.raises(DataError, match="cannot print a conversation of system, user: no system turn"):
        Chat(tokenizer, policy.family).prompt([Message("system", "Be brief."), Message("user", "?")], [])


def test_a_tokenizer_without_vision_tokens_is_refused() -> None:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    blind = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.BPE()), eos_token="</s>", pad_token="<p>"
    )
    blind.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    with pytest.raises(DataError, match=r"lacks one of <\|vision_start\|>"):
        Chat(blind, family_of("qwen2_5_vl"))
