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
"""What a search returns that found nothing."""

_ADDRESSES = re.compile(rf"\n{SOURCES}(?:\n\w+://[^\n]*)+\Z")
"""What our own tools append to what the policy saw (`vtune.tools.tool.shown`)."""

_HEADS = {
    text_search.NAME: re.compile(r"(?:\A|\n\n)(\d{1,4})\. ", re.ASCII),
    image_search.NAME: re.compile(r"(?:\A|\n)(\d{1,4})\. ", re.ASCII),
}
"""The number before a passage: of texts behind an empty line, of pictures on a line of its own."""


@dataclass(frozen=True, slots=True)
class _Chain:
    """Consecutive numbers 1, 2, …, from its last one."""

    worth: tuple[int, int]
    """How many stand before a known title, and how many before a line with text under it."""
    head: re.Match[str]
    before: "_Chain | None"

    def grown(self, worth: tuple[int, int], head: re.Match[str]) -> "_Chain":
        """With one number more."""
        return _Chain((self.worth[0] + worth[0], self.worth[1] + worth[1]), head, self)


def returned(call: Call, known: Set[str]) -> tuple[bool, list[str]]:
    """Whether passages are numbered, and the passages without their numbers.

    Else the text is a summary, which has no titles. What the policy never saw is left out.

    Args:
        call: A call of any tool.
        known: Titles of documents, as `title` has them.
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
    """A title as titles are compared."""
    return normalise(plain(text))


def _heads(text: str, number: re.Pattern[str], known: Set[str]) -> list[re.Match[str]]:
    """The numbers before passages: 1 at the start of the text, then each the next one.

    Lists within a passage have numbers, too. Where one may be either, the numbers are taken before which most
    titles are known, then most lines have text under them, as a title has; then the first.
    """
    chains: dict[int, _Chain] = {}  # by their last number
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
