"""Parses what a search returned: numbered passages, as our tools write them, or a summary of them."""

import re
from collections.abc import Set
from dataclasses import dataclass

from vtune.reward.searches import SEARCHES
from vtune.schema.trajectory import Call
from vtune.tools import image_search, text_search
from vtune.tools.scripts import plain
from vtune.tools.tool import SOURCES
from vtune.verifiers.exact import normalise

NOTHING = ("", text_search.NOTHING, image_search.NOTHING)
"""What a search returns if it finds nothing."""

_ADDRESSES = re.compile(rf"\n{SOURCES}(?:\n\w+://[^\n]*)+\Z")
"""What our own tools append to the text that the policy saw (`vtune.tools.tool.shown`)."""

_HEADS = {
    text_search.NAME: re.compile(r"(?:\A|\n\n)(\d{1,4})\. ", re.ASCII),
    image_search.NAME: re.compile(r"(?:\A|\n)(\d{1,4})\. ", re.ASCII),
}
"""The number before a passage: for texts after an empty line, for pictures on a separate line."""


@dataclass(frozen=True, slots=True)
class _Chain:
    """Consecutive numbers 1, 2, …, linked backwards from the last one."""

    worth: tuple[int, int]
    """How many precede a known title, and how many precede a line with text below it."""
    head: re.Match[str]
    before: "_Chain | None"

    def grown(self, worth: tuple[int, int], head: re.Match[str]) -> "_Chain":
        """This chain with one more number."""
        return _Chain((self.worth[0] + worth[0], self.worth[1] + worth[1]), head, self)


def returned(call: Call, known: Set[str]) -> tuple[bool, list[str]]:
    """Whether the passages are numbered, and the passages without their numbers.

    If not, the text is a summary, which has no titles. What the policy never saw is left out.

    Args:
        call: A call of any tool.
        known: Document titles, normalised by `title`.
    """
    text = seen(call)
    if call.tool not in SEARCHES or call.status != "ok" or text.strip() in NOTHING:
        return False, []
    heads = _heads(text, _HEADS[call.tool], known)
    ends = [head.start() for head in heads[1:]] + [len(text)]
    parts = [text[head.end() : end] for head, end in zip(heads, ends, strict=True)] if heads else [text]
    return bool(heads), [part for part in parts if part.strip()]


def seen(call: Call) -> str:
    """The text of a call's output that the policy saw."""
    return "" if call.unseen else _ADDRESSES.sub("", call.output)


def title(text: str) -> str:
    """A title, normalised for comparison."""
    return normalise(plain(text))


def _heads(text: str, number: re.Pattern[str], known: Set[str]) -> list[re.Match[str]]:
    """The numbers before passages: 1 at the start of the text, then each successor.

    Lists within a passage are numbered, too. If several choices are possible, prefer the one with most
    numbers before known titles, then most before lines with text below them, as titles have; then the first.
    """
    chains: dict[int, _Chain] = {}  # by last number
    for head in number.finditer(text):
        this = int(head[1])
        before = chains.get(this - 1)
        if before is None and (this > 1 or head.start() > 0):
            continue
        line, _, rest = text[head.end() :].partition("\n")
        worth = (title(line) in known, bool(rest) and not rest[0].isspace())
        chain = _Chain(worth, head, None) if before is None else before.grown(worth, head)
        if this not in chains or chain.worth > chains[this].worth:
            chains[this] = chain
    best = max(chains.items(), key=lambda chain: (chain[1].worth, chain[0]), default=(0, None))[1]
    found = []
    while best is not None:
        found.append(best.head)
        best = best.before
    return found[::-1]
