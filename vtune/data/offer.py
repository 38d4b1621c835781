"""Which tools a sample offers, and published rows whose prompts ask for tools that are not ours."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from vtune.errors import DataError, RecipeError
from vtune.schema.message import IMAGE, Message
from vtune.schema.sample import Sample
from vtune.tools import NONE, TOOLS, ToolName
from vtune.tools.calls import OPEN
from vtune.tools.python import NAME as PYTHON

PROMPT, OFFER = "published_prompt", "published_tools"
"""Members of `extra` that keep what was removed."""

_TAILS = (
    "Think first, call **image_zoom_in_tool**",  # DeepEyes-Datasets-47k, prompt V2
    "### User Image Path:",  # CodeV, template 13.1: the prompt style `codev` writes it itself
    "You FIRST think about the reasoning process",  # verl's and EasyR1's Geometry3K
    "Let's think step by step and output the final answer after",  # verl's GSM8K: after `####`
)
"""Sentences that begin the final part of a user's turn, which describes calls and the answer's form."""
_QUESTION = "Question:\n"
"""In DeepEyes' ThinkLite rows, the question follows it; the answer's form comes before it."""
_SEARCH_R1 = re.compile(
    rf"((?:{re.escape(IMAGE)}|\s)*)Answer the given question\. .{{0,2000}}?</answer>.{{0,9}}?Question:",
    re.DOTALL,
)
"""The instruction of Search-R1, and of verl's rows based on it, up to the question; its picture marks."""
_FORMS = ("<think>", "<answer>", "\\boxed")
_OF_CODE, _OF_JSON = ("<code>", "<sandbox_output>"), (OPEN, "<tools>")
"""Strings that appear in a question only if it explains how to write code, or calls in JSON."""
_BEHIND_HASHES = re.compile(r"(?:after(?: the)?|format of)\W{1,3}####")
"""How verl's GSM8K says where the answer goes; `####` alone may be a heading."""
_FOREIGN = re.compile(r"<grounding>|<text_search>|<search>(?=[^`\n]{1,80}</search>)")
"""Calls of Mini-o3, MMSearch-R1 and Search-R1, which none of our tools takes. HTML also has a `<search>` tag,
so it counts as a call only where a prompt shows how to write one."""


def named_tools(names: Sequence[str]) -> tuple[ToolName, ...]:
    """The tools that a command names; `none` means no tools and must stand alone.

    Raises:
        RecipeError: If there is no such tool, or `none` is combined with others.
    """
    if list(names) == [NONE]:
        return ()
    if NONE in names:
        raise RecipeError(
            f"{', '.join(names)}: `none` cannot be combined with tools", fix="name tools, or none"
        )
    for name in names:
        if name not in TOOLS:
            raise RecipeError(f"there is no tool {name!r}", fix=TOOLS.meant(name, NONE))
    return tuple(dict.fromkeys(names))


def offering(sample: Sample, tools: Sequence[ToolName]) -> Sample:
    """The sample for a policy that may call exactly these tools, whatever prompt it was published with.

    System turns are removed, as is what a user's turn says about calls and the answer's form: a recipe's
    `rollout.prompt` says that. `extra` keeps the original turns as `published_prompt` and the tools as
    `published_tools`. Applying it twice changes nothing.

    Raises:
        DataError: If a question mentions a tool that is not among these, or nothing is left of it.
    """
    prompt = tuple(_asked(turn) for turn in sample.prompt if turn.role != "system")
    for turn in prompt:
        _check(turn, tools)
    kept: dict[str, object] = {}
    if prompt != sample.prompt:
        kept[PROMPT] = [{"role": turn.role, "content": turn.content} for turn in sample.prompt]
    if sample.tools != tuple(tools):
        kept[OFFER] = list(sample.tools)
    parm = sample.verifier_parm
    if parm.get("answer_in") == "boxed" and _names_box(sample.prompt) and not _names_box(prompt):
        # The words that asked for a box are gone; the recipe's prompt says where the answer goes.
        parm = {key: value for key, value in parm.items() if key != "answer_in"}
    # Existing entries win: they are what was published.
    extra = kept | dict(sample.extra)
    return replace(sample, prompt=prompt, tools=tuple(tools), verifier_parm=parm, extra=extra)


def check_answer_place(text: str) -> None:
    """Check that a prompt does not ask for the answer after `####`, where it is not read.

    Raises:
        DataError: If it does, without also naming a tag or box: a policy that complies could never be right.
    """
    if _BEHIND_HASHES.search(text) and "</answer>" not in text and "\\boxed" not in text:
        raise DataError(
            "the prompt asks for the answer after ####, where no answer is read",
            fix="import with --tools (none, or the tools that the model may call): this removes "
            "verl's words, and the recipe's prompt says where the answer goes; remove other "
            "words from the rows",
        )


class Unserved(NamedTuple):
    """A call that a prompt mentions but no tool of the sample takes."""

    call: str
    removable: bool
    """Whether `offering` removes all mentions."""


def unserved_call(sample: Sample) -> Unserved | None:
    """The first such call in a user's turn; None if the sample's environment defines its calls."""
    if sample.environment:
        return None
    turns = [turn for turn in sample.prompt if turn.role == "user"]
    found = _unserved(turns, sample.tools)
    if found is None:
        return None
    return Unserved(found, removable=_unserved(map(_asked, turns), sample.tools) is None)


def _unserved(turns: Iterable[Message], tools: Sequence[str]) -> str | None:
    text = "\n".join(turn.content for turn in turns)
    if found := _FOREIGN.search(text):
        return found[0]
    return OPEN if OPEN in text and not set(tools) - {PYTHON} else None


def _names_box(prompt: Sequence[Message]) -> bool:
    return any("\\boxed" in turn.content for turn in prompt)


def _asked(turn: Message) -> Message:
    """A user turn without the words of another system's prompt."""
    if turn.role != "user":
        return turn
    text = turn.content
    head, mark, question = text.partition(_QUESTION)
    if mark and any(form in head for form in _FORMS):
        text = f"{IMAGE}\n" * head.count(IMAGE) + question
    if found_search := _SEARCH_R1.match(text):
        text = f"{found_search[1]}{text[found_search.end() :].strip()}"
    for tail in _TAILS:
        before, found, _ = text.partition(tail)
        text = before.rstrip() if found else text
    return turn if text == turn.content else replace(turn, content=text)


def _check(turn: Message, tools: Sequence[ToolName]) -> None:
    """Check that a user turn asks something and mentions no call that no tool would run."""
    if turn.role != "user":
        return
    check_answer_place(turn.content)
    if not turn.content.replace(IMAGE, "").strip():
        raise DataError(
            "the user's turn holds a prompt but no question", fix="check which column holds the question"
        )
    absent: list[str] = [name for name in TOOLS if name not in tools and name != PYTHON]
    if PYTHON not in tools:
        absent += _OF_CODE
    if not set(tools) - {PYTHON}:
        absent += _OF_JSON
    absent += _FOREIGN.findall(turn.content)
    spoken = next((word for word in absent if word in turn.content), None)
    if spoken is not None:
        raise DataError(
            f"the question mentions {spoken}, which is not offered; offered: {', '.join(tools) or 'no tool'}",
            fix="remove these words from the rows, or keep the tools as published",
        )
