"""The format part of the reward: are the tags well formed, and in order?"""

import re
from collections.abc import Sequence

from vtune.reward.part import REWARDS, RewardPart, Scene
from vtune.reward.recipe import RewardRecipe
from vtune.schema.message import Message
from vtune.schema.trajectory import Call, Trajectory
from vtune.schema.verdict import Verdict
from vtune.tools.calls import TEMPLATE, is_valid
from vtune.tools.python import NAME as PYTHON

_CALL = TEMPLATE.call
_TAG = re.compile(rf"<(/?(?:think|thinking|code|answer|sandbox_output|{_CALL}|{TEMPLATE.response}))>")

_CALLS = (
    ("code", "/code"),
    ("code", "/code", "/think"),
    ("/think", "code", "/code"),
    ("/think", _CALL, f"/{_CALL}"),
)
"""The tags of a turn that calls a tool, after its `<think>`."""
_LAST = (("/think", "answer", "/answer"),)
"""The same for the last turn."""


def format_reward(messages: Sequence[Message], calls: Sequence[Call] = ()) -> Verdict:
    """Score 1 if every turn of the policy has the form that a prompt asks for, else 0 with the reason.

    A turn opens its thoughts with `<think>`. Every turn but the last continues with one `<code>…</code>`,
    inside or after the thoughts, or closes them and makes one `<tool_call>…</tool_call>`, in JSON that its
    tool could accept. The last turn closes them and gives its `<answer>…</answer>`. Thoughts left open after
    the code of a turn continue in the next, which then needs no `<think>`: so one pair may hold
    all the code of a conversation (CodeV, template 13.1; Thyme's traces), or every turn may have one (CodeV
    §15). No turn may have text outside its tags, a missing or extra tag, empty code or an empty answer. A
    conversation may use `<thinking>` instead of `<think>` in all of its turns (Dong et al., appendix B.2).

    Args:
        messages: The conversation; only the assistant's turns are read.
        calls: Its tool calls; code that fails is no violation of form.

    Source: CodeV, template 13.1, §15, and §14 (a separate part, with weight 0.3). Its published code counts
    tags and accepts text that has none; the order is ours. Dong et al., appendix B.2 (tool calls;
    SenseNova-MARS's code also requires that none failed by the model's fault).
    """
    turns = _with_think([message.content for message in messages if message.role == "assistant"])
    if not turns:
        return Verdict(0.0, "no turn of the policy")
    thinking = False
    for number, turn in enumerate(turns, start=1):
        problem = _problem(turn, thinking=thinking, last=number == len(turns))
        if problem:
            return Verdict(0.0, f"turn {number}: {problem}")
        thinking = "</think>" not in turn
    for number, call in enumerate(calls):
        if call.tool != PYTHON and call.status == "error":
            return Verdict(0.0, f"call {number}: {call.error}")
    return Verdict(1.0, "well formed")


def counted_tags(reply: str) -> Verdict:
    """A quarter for each of `<think>`, `</think>`, `<answer>` and `</answer>` that occurs exactly once.

    For replies with one turn, or one pair of thoughts; a pair per turn loses two quarters.

    Source: V-Triune eq. 2. Its published server counts this way for maths, requiring each tag on its own
    line, and scores detection 1 or 0: an answer with at least one box.
    """
    counts = {tag: reply.count(tag) for tag in ("<think>", "</think>", "<answer>", "</answer>")}
    odd = [f"{tag} {count} times" for tag, count in counts.items() if count != 1]
    return Verdict(1 - 0.25 * len(odd), ", ".join(odd) or "each tag once")


def _with_think(turns: list[str]) -> list[str]:
    """The turns with `<think>` in place of `<thinking>`, if they use `<thinking>` only."""
    if any("<think>" in turn or "</think>" in turn for turn in turns):
        return turns
    return [turn.replace("<thinking>", "<think>").replace("</thinking>", "</think>") for turn in turns]


def _problem(turn: str, *, thinking: bool, last: bool) -> str:
    """What is wrong with a turn, or an empty string.

    Args:
        turn: As the policy wrote it.
        thinking: The previous turn has left its thoughts open.
        last: This is the last turn.
    """
    parts = _TAG.split(turn)  # text, tag, text, tag, … text
    texts, tags = parts[::2], tuple(parts[1::2])
    shapes = _LAST if last else _CALLS
    opens = int(tags[:1] == ("think",))
    if tags[opens:] not in shapes or not (opens or thinking):
        return f"{_written(tags) or 'no tag'} instead of {_written(('think', *shapes[0]))}"
    (kind,) = {"code", _CALL, "answer"}.intersection(tags)
    inside = tags.index(kind) + 1
    if any(text.strip() for place, text in enumerate(texts) if place not in (opens, inside)):
        return "text outside the tags"
    if kind == _CALL:
        return "" if is_valid(turn) else "a tool call that is not JSON with a name and arguments"
    return "" if texts[inside].strip() else f"an empty <{kind}>"


def _written(tags: tuple[str, ...]) -> str:
    return " ".join(f"<{tag}>" for tag in tags)


def form_of(trajectory: Trajectory, recipe: RewardRecipe) -> Verdict:
    """The format part, by the recipe's rule."""
    if recipe.format_rule == "counted":
        return counted_tags(trajectory.reply)
    return format_reward(trajectory.messages, trajectory.calls)


async def form(weight: float, scene: Scene) -> Verdict:
    """The format part: whether its turns have the form that the prompt asks for."""
    return form_of(scene.trajectory, scene.recipe)


REWARDS.add("format", RewardPart(form, column=True))
