"""Are the tags well formed, and in order?"""

import re
from collections.abc import Sequence

from vtune.schema.message import Message
from vtune.schema.trajectory import Call
from vtune.schema.verdict import Verdict
from vtune.tools.calls import is_valid

_TAG = re.compile(r"<(/?(?:think|code|answer|sandbox_output|tool_call|tool_response))>")

_CALL = ("think", "code", "/code")
_CLOSED_CALL = (*_CALL, "/think")
_TOOL_CALL = ("think", "/think", "tool_call", "/tool_call")
_LAST = ("think", "/think", "answer", "/answer")


def format_reward(messages: Sequence[Message], calls: Sequence[Call] = ()) -> Verdict:
    """Score 1 where every turn of the policy has the form that the prompt asks for, else 0 and the reason.

    Every turn but the last is `<think>…<code>…</code>`, with or without `</think>` behind it (generation
    stops at `</code>`), or `<think>…</think><tool_call>…</tool_call>` with one call, in JSON, that its tool
    could take. The last is `<think>…</think><answer>…</answer>`. Neither has text outside its tags,
    a tag more or less, an empty code or an empty answer.

    Args:
        messages: The conversation; only the assistant's turns are read.
        calls: Its tool calls; of code, failures are no matter of form.

    Source: Dong et al., appendix B.2 (tool calls; SenseNova-MARS's code adds that none failed by the model's
    fault). CodeV, template 13.1 and §14 (a part of its own, with weight 0.3). Its published code counts tags
    and accepts text without any; the order is ours.
    """
    turns = [message.content for message in messages if message.role == "assistant"]
    if not turns:
        return Verdict(0.0, "no turn of the policy")
    for number, turn in enumerate(turns, start=1):
        problem = _problem(turn, last=number == len(turns))
        if problem:
            return Verdict(0.0, f"turn {number}: {problem}")
    for number, call in enumerate(calls):
        if call.tool != "python" and call.status == "error":
            return Verdict(0.0, f"call {number}: {call.error}")
    return Verdict(1.0, "well formed")


def counted_tags(reply: str) -> Verdict:
    """A quarter for each of `<think>`, `</think>`, `<answer>` and `</answer>` that stands there exactly once.

    For replies of one turn: one that calls tools thinks in each turn.

    Source: V-Triune eq. 2. Its published server counts so for maths, with the tags on lines of their own, and
    gives detection 1 or 0: an answer with at least one box.
    """
    counts = {tag: reply.count(tag) for tag in ("<think>", "</think>", "<answer>", "</answer>")}
    odd = [f"{tag} {count} times" for tag, count in counts.items() if count != 1]
    return Verdict(1 - 0.25 * len(odd), ", ".join(odd) or "each tag once")


def _problem(turn: str, *, last: bool) -> str:
    """What is wrong with a turn, or an empty string."""
    parts = _TAG.split(turn)  # text, tag, text, tag, … text
    texts, tags = parts[::2], tuple(parts[1::2])
    if tags == _TOOL_CALL and not last:
        outside = [texts[0], *texts[2:3], *texts[4:]]
        if any(text.strip() for text in outside):
            return "text outside the tags"
        return "" if is_valid(turn) else "a tool call that is not JSON with a name and arguments"
    shapes = (_LAST,) if last else (_CALL, _CLOSED_CALL)
    if tags not in shapes:
        return f"{_written(tags) or 'no tag'} instead of {_written(shapes[0])}"
    before, _, *rest = texts
    filled = rest.pop(1 if last else 0)
    if before.strip() or any(text.strip() for text in rest):
        return "text outside the tags"
    return "" if filled.strip() else f"an empty {'<answer>' if last else '<code>'}"


def _written(tags: tuple[str, ...]) -> str:
    return " ".join(f"<{tag}>" for tag in tags)
