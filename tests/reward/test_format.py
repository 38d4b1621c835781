import pytest
from hypothesis import given
from hypothesis import strategies as st

from vtune.reward.format import counted_tags, format_reward
from vtune.schema.message import Message

ANSWER = "<think>I see.</think>\n<answer>7</answer>"
CALL = "<think>Look closer.<code>crop()</code>"


def score(*turns: str) -> float:
    return format_reward([Message("user", "?"), *(Message("assistant", turn) for turn in turns)]).score


@pytest.mark.parametrize(
    "turns",
    [
        pytest.param([ANSWER], id="answer only"),
        pytest.param([CALL, ANSWER], id="one call"),
        pytest.param([CALL + "</think>", CALL, ANSWER + "\n"], id="two calls, thoughts closed and open"),
    ],
)
def test_well_formed(turns: list[str]) -> None:
    assert score(*turns) == 1.0


@pytest.mark.parametrize(
    "turns",
    [
        pytest.param([], id="nothing"),
        pytest.param([""], id="empty"),
        pytest.param(["7"], id="no tags"),
        pytest.param(["<answer>7</answer>"], id="no thoughts"),
        pytest.param(["<think>I see.</think>"], id="no answer"),
        pytest.param([CALL], id="ends with a call"),
        pytest.param([ANSWER, ANSWER], id="an answer before the end"),
        pytest.param([ANSWER + "<answer>8</answer>"], id="two answers"),
        pytest.param([ANSWER + " or 8"], id="words after the answer"),
        pytest.param(["Well. " + ANSWER], id="words before the thoughts"),
        pytest.param(["<think>I see.<answer>7</answer></think>"], id="answer inside the thoughts"),
        pytest.param(["<think>I <think>see.</think><answer>7</answer>"], id="nested"),
        pytest.param(["<think>I see.</think><answer>7"], id="not closed"),
        pytest.param(["<think>I see.</think><answer> </answer>"], id="empty answer"),
        pytest.param(["<code>crop()</code>", ANSWER], id="code outside the thoughts"),
        pytest.param(["<think>Look.</think><code>crop()</code>", ANSWER], id="code behind the thoughts"),
        pytest.param(["<think>Look.<code> </code>", ANSWER], id="empty code"),
        pytest.param(["<think>Look.<code>a</code><code>b</code>", ANSWER], id="two codes in a turn"),
        pytest.param([CALL + "<sandbox_output>7</sandbox_output>", ANSWER], id="invented output"),
    ],
)
def test_not_well_formed(turns: list[str]) -> None:
    assert score(*turns) == 0.0


@given(
    st.lists(
        st.lists(st.sampled_from(["<think>", "</think>", "<code>", "</code>", "<answer>", "</answer>", "x"]))
    )
)
def test_no_reply_raises_and_the_score_is_0_or_1(turns: list[list[str]]) -> None:
    assert score(*map("".join, turns)) in (0.0, 1.0)


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        pytest.param(ANSWER, 1.0, id="all four"),
        pytest.param("</answer></think><answer><think>", 1.0, id="in any order"),
        pytest.param("<think>I see.<answer>7</answer>", 0.75, id="one missing"),
        pytest.param(ANSWER + "</answer>", 0.75, id="one twice"),
        pytest.param("<answer>7</answer>", 0.5, id="no thoughts"),
        pytest.param("7", 0.0, id="none"),
    ],
)
def test_each_tag_that_stands_once_is_a_quarter(reply: str, score: float) -> None:
    assert counted_tags(reply).score == score


@given(st.lists(st.sampled_from(["<think>", "</think>", "<answer>", "</answer>", "7"])).map("".join))
def test_the_counted_score_is_the_share_of_the_tags(reply: str) -> None:
    tags = ("<think>", "</think>", "<answer>", "</answer>")
    assert counted_tags(reply).score == sum(reply.count(tag) == 1 for tag in tags) / 4
