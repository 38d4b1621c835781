import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtune.verifiers import tags


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        pytest.param("<think>a</think><answer> 7 </answer>\n", "7", id="well formed"),
        pytest.param("<answer>7</answer>", "7", id="without thoughts"),
        pytest.param("<answer>two\nlines</answer>", "two\nlines", id="lines"),
        pytest.param("<answer>\\boxed{\\frac{1}{2}}</answer>", "\\frac{1}{2}", id="a box around it"),
        pytest.param("<answer>\\boxed{7} or \\boxed{8}</answer>", "\\boxed{7} or \\boxed{8}", id="two boxes"),
        pytest.param("<answer>\\boxed{7</answer>", "\\boxed{7", id="a box that is open"),
        pytest.param("<answer></answer>", "", id="empty is an answer of no text"),
        pytest.param("<think>a<code>b</code>\n<answer>7</answer>", "7", id="generation stopped at the code"),
        pytest.param("<answer>7</answer> or so", None, id="words after it"),
        pytest.param("<answer>7</answer><answer>7</answer>", None, id="twice"),
        pytest.param(
            "<think>maybe <answer>7</answer></think>", None, id="in closed thoughts, not at the end"
        ),
        pytest.param("<think>maybe <answer>7</answer>", None, id="in open thoughts"),
        pytest.param("<thinking>maybe <answer>7</answer>", None, id="in open thoughts of another word"),
        pytest.param("<think></think><code>print(<answer>7</answer>", None, id="in open code"),
        pytest.param("<answer>7", None, id="not closed"),
        pytest.param("<answer>7<answer>8</answer>", None, id="opened twice"),
        pytest.param("<ANSWER>7</ANSWER>", None, id="other tag"),
    ],
)
def test_the_answer_is_read_from_its_tags(reply: str, answer: str | None) -> None:
    assert tags.answer(reply) == answer


PIECES = ["<answer>", "</answer>", "<think>", "</think>", "<code>", "7", " "]


@given(st.lists(st.sampled_from(PIECES)).map("".join))
def test_an_answer_is_opened_once_and_closed_last(reply: str) -> None:
    answer = tags.answer(reply)
    if answer is not None:
        assert reply.count("<answer>") == 1
        assert reply.rstrip().endswith("</answer>")


@pytest.mark.parametrize(
    ("reply", "content"),
    [
        ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("\\boxed {a} and \\fbox{a}", "a"),
        ("\\boxed{\\{1\\}}", "\\{1\\}"),
        ("\\boxed{a \\boxed{b}}", "a \\boxed{b}"),
        ("\\boxed{}", ""),
        ("\\boxed{a} \\boxed{b", "a"),
        ("boxed{a}", None),
        ("\\boxed{a} \\boxed{b}", None),
        ("<think>\\boxed{a}</think>", None),
        ("<think>\\boxed{a}", None),
        ("\\boxed{b} <think>or \\boxed{a}?", "b"),
    ],
)
def test_the_content_of_a_box_is_read(reply: str, content: str | None) -> None:
    assert tags.boxed(reply) == content


@given(st.lists(st.sampled_from(["\\boxed{", "{", "}", "a"])).map("".join))
def test_boxed_content_is_part_of_the_reply_with_balanced_braces(reply: str) -> None:
    content = tags.boxed(reply)
    if content is not None:
        assert content in reply
        assert content.count("{") == content.count("}")


@given(st.lists(st.sampled_from(["<code>", "</code>", "x", "\n", "<", "code>"])).map("".join))
def test_the_first_closed_tag_matches_a_regular_expression(text: str) -> None:
    found = re.search(r"<code>(.*?)</code>", text, re.DOTALL)
    assert tags.tagged(text, "code") == (found[1] if found else None)


def test_many_openings_cost_no_more_than_one() -> None:
    """A million openings: scanning from each to the end would take hours."""
    assert tags.tagged("<code>" * 1_000_000, "code") is None


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ("<think>a</think> It is 7. ", "It is 7."),
        ("<think>a</think><answer>7</answer>", "7"),
        ("<thinking>a</thinking> It is 7.", "It is 7."),
        ("It is <answer>7</answer> or 8", "It is <answer>7</answer> or 8"),
        ("<think>a</think>", None),
        ("<answer></answer>", ""),
        ("<think>At first sight it is (B)", None),
        ("<thinking>At first sight it is (B)", None),
        ("<think>a</think> It is 7. <think>Or", "It is 7."),
        ("<think>a<think>b", None),
        ("<think>a <code>b</code>\nIt is 7.", "It is 7."),
        ("<think>a <tool_call>b</tool_call>\nIt is 7.", "It is 7."),
        ("<code>b</code>\nIt is 7.", "<code>b</code>\nIt is 7."),
    ],
)
def test_the_spoken_answer_is_read(reply: str, said: str | None) -> None:
    assert tags.said(reply) == said
