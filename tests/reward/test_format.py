import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.formats.published import THYME_RESPONSE
from vtune.data.formats.building import Options
from vtune.data.formats.source import Place
from vtune.data.formats.thyme import thyme_trace
from vtune.reward.format import counted_tags, format_reward
from vtune.schema.message import Message
from vtune.verifiers import tags

ANSWER = "<think>I see.</think>\n<answer>7</answer>"
CALL = "<think>Look closer.<code>crop()</code>"
PUBLISHED_CALL = (
    '<thinking>Look it up.</thinking>\n<tool_call>{"name": "search", "arguments": {}}</tool_call>'
)
PUBLISHED_ANSWER = ANSWER.replace("think>", "thinking>")
"""The form of models trained with SenseNova-MARS's prompt (Dong et al., appendix B.2)."""


def score(*turns: str) -> float:
    return format_reward([Message("user", "?"), *(Message("assistant", turn) for turn in turns)]).score


@pytest.mark.parametrize(
    "turns",
    [
        pytest.param([ANSWER], id="answer only"),
        pytest.param([CALL, ANSWER], id="one call"),
        pytest.param([CALL + "</think>", CALL, ANSWER + "\n"], id="two calls, thoughts closed and open"),
        pytest.param(["<think>Look.</think>\n<code>crop()</code>", ANSWER], id="code behind the thoughts"),
        pytest.param([CALL, "It is 7.</think>\n<answer>7</answer>"], id="one pair around a call"),
        pytest.param([CALL, "Closer.<code>x()</code>", "7.</think><answer>7</answer>"], id="and around two"),
        pytest.param([CALL, CALL, "7.</think><answer>7</answer>"], id="a pair opened again, and gone on in"),
        pytest.param(
            [CALL, "Closer.<code>x()</code></think>", ANSWER], id="a pair that ends before the last"
        ),
        pytest.param([PUBLISHED_CALL, PUBLISHED_ANSWER], id="thoughts in <thinking>"),
    ],
)
def test_well_formed_conversations_score_1(turns: list[str]) -> None:
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
        pytest.param(["<think>Look.</think>So: <code>a()</code>", ANSWER], id="words before the code"),
        pytest.param(
            [CALL + "</think>", "7.</think><answer>7</answer>"], id="on in thoughts that are closed"
        ),
        pytest.param(["<think>Look.</think><code>a()</code>", "7.</think><answer>7</answer>"], id="or were"),
        pytest.param(
            ["Look.<code>crop()</code>", "7.</think><answer>7</answer>"], id="thoughts never opened"
        ),
        pytest.param([CALL, "It is 7.<answer>7</answer>"], id="thoughts never closed"),
        pytest.param([CALL, "Well. " + ANSWER], id="words before thoughts that are opened again"),
        pytest.param([CALL, "Closer.", ANSWER], id="a turn of thoughts alone"),
        pytest.param(["<think>Look.<code> </code>", ANSWER], id="empty code"),
        pytest.param(["<think>Look.<code>a</code><code>b</code>", ANSWER], id="two codes in a turn"),
        pytest.param([PUBLISHED_CALL, ANSWER], id="two words for thoughts"),
        pytest.param(["<thinking>I see.</think>\n<answer>7</answer>"], id="one that ends with another"),
        pytest.param([CALL + "<sandbox_output>7</sandbox_output>", ANSWER], id="invented output"),
    ],
)
def test_malformed_conversations_score_0(turns: list[str]) -> None:
    assert score(*turns) == 0.0


def test_a_published_thyme_trace_is_well_formed() -> None:
    row = {"image": [], "question": "Which?", "response": THYME_RESPONSE.replace("<image>", "a.jpg")}
    trace = thyme_trace(row, Place(Path("2round.parquet"), 0, "2round"), Options())
    assert [call.status for call in trace.calls] == ["ok", "error"]
    assert format_reward(trace.messages, trace.calls).score == 1.0


TEXT = {"T": "<think>Hm.", "t": "</think>", "c": "<code>\nx()\n</code>", "a": "<answer>7</answer>"}
"""Letters that encode a conversation as a word; `|` ends a turn."""
RULE = re.compile(r"(T(ct|tc)\||Tc\|(T?c\|){0,3}T?(ct|tc)\|){0,3}(Tta|Tc\|(T?c\|){0,3}T?ta)")
"""The same rule as a grammar; in its outermost group, thoughts are opened and closed."""


@given(
    st.from_regex(RULE, fullmatch=True),
    st.integers(0, 20),
    st.integers(0, 2),
    st.sampled_from(["", "T", "t", "c", "a", "|", "|c"]),
)
def test_well_formedness_matches_a_grammar(word: str, place: int, left_out: int, put_in: str) -> None:
    word = word[:place] + put_in + word[place + left_out :]
    turns = ["".join(TEXT[letter] for letter in turn) for turn in word.split("|")]
    assert score(*turns) == bool(re.fullmatch(RULE.pattern.replace("{0,3}", "*"), word))


@given(st.lists(st.booleans(), max_size=4), st.sampled_from(["", "Hm. ", "\n"]))
def test_one_pair_of_thoughts_in_total_or_per_turn_scores_the_same(calls: list[bool], thought: str) -> None:
    code = [f"{thought}<code>{'crop()' if good else '1/0'}</code>" for good in calls]
    last = f"{thought}</think>\n<answer>7</answer>"
    one = ["<think>" * (number == 0) + turn for number, turn in enumerate([*code, last])]
    own = ["<think>" + turn for turn in [*code, last]]
    closed = [*(turn + "</think>" for turn in own[:-1]), own[-1]]
    assert [score(*turns) for turns in (one, own, closed)] == [1.0, 1.0, 1.0]
    assert {tags.answer("\n".join(turns)) for turns in (one, own, closed)} == {"7"}


@pytest.mark.parametrize(
    "piece", ["<think>", "</think>", "<code>", "<tool_call>", "<answer>", "<", " ", "<think></think>", "</"]
)
def test_a_hostile_reply_takes_linear_time(piece: str) -> None:
    """A megabyte takes at most 0.2 s; retrying from each of its tags would take minutes."""
    flood = piece * (1_000_000 // len(piece))
    for turns in ([flood], [CALL + flood, ANSWER], [CALL, f"<think>{flood}</think><answer>{flood}</answer>"]):
        began = time.process_time()
        score(*turns)
        assert time.process_time() - began < 5.0


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
        pytest.param(CALL + "\n7.</think><answer>7</answer>", 1.0, id="several turns in one pair"),
        pytest.param(CALL + "</think>" + ANSWER, 0.5, id="two turns with a pair each"),
        pytest.param("<answer>7</answer>", 0.5, id="no thoughts"),
        pytest.param("7", 0.0, id="none"),
    ],
)
def test_each_tag_that_occurs_once_scores_a_quarter(reply: str, score: float) -> None:
    assert counted_tags(reply).score == score


@given(st.lists(st.sampled_from(["<think>", "</think>", "<answer>", "</answer>", "7"])).map("".join))
def test_the_counted_score_is_the_share_of_the_tags(reply: str) -> None:
    tags = ("<think>", "</think>", "<answer>", "</answer>")
    assert counted_tags(reply).score == sum(reply.count(tag) == 1 for tag in tags) / 4
