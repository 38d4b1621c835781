"""Reads the tags that a reply is asked to use."""

import re
from collections.abc import Iterator

_ANSWER = re.compile(r"<answer>(.*?)</answer>\s*\Z", re.DOTALL)
_STATE = re.compile(r"</?(?:think(?:ing)?|code)>")
_THOUGHT = re.compile(r"</think(?:ing)?>")
"""The end of thoughts; the tag is `<thinking>` in Dong et al. (appendix B.2) and SenseNova-MARS."""
_OPEN_THOUGHT = re.compile(r"<think(?:ing)?>|</(?:code|tool_call)>")
"""After the last end of thoughts: where new ones begin, and where they end because generation stops there."""
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)


def answer(reply: str) -> str | None:
    """The content of the reply's only `<answer>`, stripped and unboxed; None where there is not exactly one.

    It must be closed and end the reply: two answers are hedging, and words after the answer
    might retract it. An answer inside a `<think>`, a `<thinking>` or a `<code>` that is still open does
    not count; `</code>` ends the thoughts too, because generation stops there.

    Args:
        reply: Everything that the policy wrote, turns joined.
    """
    if reply.count("<answer>") != 1 or reply.count("</answer>") != 1:
        return None
    found = _ANSWER.search(reply)
    if found is None:
        return None
    before = _STATE.findall(reply[: found.start()])
    if before and before[-1] in ("<think>", "<thinking>", "<code>"):
        return None
    return unboxed(found[1].strip())


def said(reply: str) -> str | None:
    """Everything after the thoughts, without a final `<answer>` tag pair; None if there is nothing."""
    found = answer(reply)
    return closing(reply) or None if found is None else found


def unboxed(text: str) -> str:
    r"""The content of a box if the box is the whole text; any other text unchanged."""
    start = _BOX.match(text)
    end = None if start is None else _closed_at(text, start.end())
    return text if start is None or end != len(text) - 1 else text[start.end() : end].strip()


def tagged(text: str, tag: str) -> str | None:
    """The text between the first `<tag>` and the `</tag>` after it; None if either is missing.

    Takes linear time, whatever a policy wrote; a regular expression would rescan from every opening tag.
    """
    content, closed, _ = text.partition(f"<{tag}>")[2].partition(f"</{tag}>")
    return content if closed else None


def boxed(reply: str) -> str | None:
    r"""The content of the reply's `\boxed{}`, stripped, or None if there is none or several disagree.

    Boxes in thoughts do not count. The same content may be boxed again; different content
    is hedging.
    """
    found = {content.strip() for content in _boxes(closing(reply))}
    return found.pop() if len(found) == 1 else None


def closing(reply: str) -> str:
    """The reply without its thoughts: what follows the last `</think>`, minus any thoughts there.

    Thoughts that are still open, e.g. in a truncated reply, extend to its end, or to a call: generation
    stops at `</code>` and `</tool_call>`.
    """
    rest = reply[thoughts_end(reply) :]
    kept: list[str] = []
    begin: int | None = None
    behind = 0
    for mark in _OPEN_THOUGHT.finditer(rest):
        opens = not mark[0].startswith("</")
        if opens and begin is None:
            begin = mark.start()
        elif begin is not None and not opens:
            kept.append(rest[behind:begin])
            begin, behind = None, mark.end()
    return "".join([*kept, rest[behind:begin]]).strip()


def thoughts_end(reply: str) -> int:
    """Where the last `</think>` or `</thinking>` ends; 0 if there is none."""
    return max((found.end() for found in _THOUGHT.finditer(reply)), default=0)


def _boxes(text: str) -> Iterator[str]:
    """The content of each outermost closed box."""
    start = _BOX.search(text)
    while start is not None:
        end = _closed_at(text, start.end())
        if end is None:
            return
        yield text[start.end() : end]
        start = _BOX.search(text, end)


def _closed_at(text: str, begin: int) -> int | None:
    """Position of the brace that closes the one opened before `begin`."""
    depth = 1
    for brace in _BRACE.finditer(text, begin):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            return brace.start()
    return None


def closes(text: str) -> bool:
    """Whether braces are balanced, in order: a stray one would end the box around the text."""
    depth = 0
    for brace in _BRACE.findall(text):
        depth += {"{": 1, "}": -1}.get(brace, 0)
        if depth < 0:
            return False
    return depth == 0
