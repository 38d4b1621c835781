"""Reading the tags that a reply is asked to use."""

import re

_ANSWER = re.compile(r"<answer>(.*?)</answer>\s*\Z", re.DOTALL)
_STATE = re.compile(r"</?(?:think|code)>")


def answer(reply: str) -> str | None:
    """The content of the reply's only `<answer>`, stripped, or None where there is not exactly one.

    It has to be closed and to end the reply: two answers are hedging, and words after the answer
    may take it back. An answer inside a `<think>` or a `<code>` that is still open does not count;
    `</code>` ends the thinking too, because generation stops there.

    Args:
        reply: Everything that the policy wrote, turns joined.
    """
    if reply.count("<answer>") != 1 or reply.count("</answer>") != 1:
        return None
    found = _ANSWER.search(reply)
    if found is None:
        return None
    before = _STATE.findall(reply[: found.start()])
    if before and before[-1] in ("<think>", "<code>"):
        return None
    return found[1].strip()
