"""Reads the tags that a reply is asked to use."""

import re
from collections.abc import Iterator

_ANSWER = re.compile(r"<answer>(.*?)</answer>\s*\Z", re.DOTALL)
_STATE = re.compile(r"</?(?:think(?:ing)?|code)>")
_THOUGHT = re.compile(r"</think(?:ing)?>")
"""The end of thoughts; `<thinking>` is what Dong et al. (appendix B.2) and SenseNova-MARS call them."""
_OPEN_THOUGHT = re.compile(r"<think(?:ing)?>|</(?:code|tool_call)>")
"""Behind the last end of thoughts: where some begin, and what ends them because generation stops there."""
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)


def answer(reply: str) -> str | None:
    """The content of the reply's only `<answer>`, stripped and unboxed; None where there is not exactly one.

    It has to be closed and to end the reply: two answers are hedging, and words after the answer
    may take it back. An answer inside a `<think>`, a `<thinking>` or a `<code>` that is still open does
    not count; `</code>` ends the thinking too, because generation stops there.

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
    """All that follows the thoughts, without an `<answer>` that ends it; None where that is nothing."""
    found = answer(reply)
    return closing(reply) or None if found is None else found


def unboxed(text: str) -> str:
    r"""What a box holds that is the whole text; any other text as it is."""
    start = _BOX.match(text)
    end = None if start is None else _closed_at(text, start.end())
    return text if start is None or end != len(text) - 1 else text[start.end() : end].strip()


def tagged(text: str, tag: str) -> str | None:
    """What stands between the first `<tag>` and the `</tag>` behind it, None where that is missing.

    In time linear in the text, whatever a policy wrote; a regular expression looks on from every opening.
    """
    content, closed, _ = text.partition(f"<{tag}>")[2].partition(f"</{tag}>")
    return content if closed else None


def boxed(reply: str) -> str | None:
    r"""The content of the reply's `\boxed{}`, stripped, or None where there is none or they disagree.

    What is boxed in thoughts does not count. The same content may be boxed again; another one
    beside it is hedging.
    """
    found = {content.strip() for content in _boxes(closing(reply))}
    return found.pop() if len(found) == 1 else None


def closing(reply: str) -> str:
    """The reply without its thoughts: what stands behind the last `</think>`, less what is thought there.

    Thoughts that are still open, as where a reply is cut off, go on to its end, or to a call: generation
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
    """Where the last `</think>` or `</thinking>` ends; 0 where there is none."""
    return max((found.end() for found in _THOUGHT.finditer(reply)), default=0)


def _boxes(text: str) -> Iterator[str]:
    """The content of each outermost box that is closed."""
    start = _BOX.search(text)
    while start is not None:
        end = _closed_at(text, start.end())
        if end is None:
            return
        yield text[start.end() : end]
        start = _BOX.search(text, end)


def _closed_at(text: str, begin: int) -> int | None:
    """Where the brace closes that was opened before `begin`."""
    depth = 1
    for brace in _BRACE.finditer(text, begin):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            return brace.start()
    return None
