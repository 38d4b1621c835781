"""Reads a judge's reply: one level, label or verdict whatever surrounds it, or nothing at all.

Judges are asked for one word but write sentences. A reply counts if it contains exactly one of the possible
marks, stated as a verdict; one that weighs two, or quotes the rules, is unreadable. Nothing is guessed.
"""

import re
from collections.abc import Mapping
from typing import Literal, TypeVar

T = TypeVar("T")

Level = Literal["full", "partial", "miss"]
"""How well a call's pictures match the question."""

_LEVELS: dict[float, Level] = {1.0: "full", 0.5: "partial", 0.25: "miss"}
_LABELS = {1.0: True, 0.0: False}
_SAME = {"TRUE": True, "FALSE": False}

_MARKUP = re.compile(r"[*`\"'#_\\$]|\bboxed\b")
_OF_ONE = re.compile(r"(?<=\d)\s*(?:/|out of)\s*1(?:\.0+)?(?![\d.])")
"""The scale in "0.5/1" or "0.5 out of 1"."""
_NUMBER = re.compile(r"(?<![\w.%/-])(\d*\.\d+|\d+)(?![\w%/]|\.\d)")
SAME_MARKS = re.compile(r"\b(TRUE|FALSE)\b", re.IGNORECASE)
CLASS_MARKS = re.compile(r"\b[ABC]\b")

_VERDICT_FOLLOWS = re.compile(
    r"(?:^|[.:=!?;,(\[{>\n\uff1a\u2192]\s*|\ba\s+"
    r"|\b(?:score|rating|level|label|answer|verdict|result|grade|class|category|option)\s*"
    r"(?:[-\u2013\u2014]\s*|(?:(?:(?:should|must|would)\s+be|is|of)\s+(?:an?\s+)?))?"
    r"|\b(?:give|assign|rate|score|say|grade)\s+(?:(?:it|this|that)\s+)?(?:as\s+)?(?:an?\s+)?)$",
    re.IGNORECASE,
)
"""Before a mark: the beginning of a reply, sentence or line, a label, or "I give it a"."""
_VERDICT_ENDS = re.compile(
    r"\s*(?:$|[.:,;=!()\]}\n]|</|[-\u2013\u2014](?:\s|$)|(?:because|since|as|for|and|to)\b)", re.IGNORECASE
)
"""After a mark: an end, the tag that closes it, a reason, or a clause that follows."""
_WEIGHED = re.compile(
    r"\b(?:not|nor|or|than|between|least|most|below|above|under|over|to)\s*$"
    r"|\b(?:not|never|cannot|(?:do|does|did|is|are|was|would|could|should|ca|wo)n\u2019?t) +"
    r"(?:(?!(?:so|thus|hence|therefore|but|and|i)\b)[\w\u2019]+ +){1,5}$",
    re.IGNORECASE,
)
"""Before a mark: another mark, or a negation, as in "it does not deserve a 1"."""
_WEIGHS = re.compile(
    r"\s*(?:(?:or|if|when|unless|would|could)\b|(?:to|and)\s+(?:\.?\d|a\s+half\b)|[-\u2013\u2014]\s*\d)",
    re.IGNORECASE,
)
"""After a mark: a condition, or another mark. In "0.5 and the rest is cut off", something else follows."""
_NAMES = re.compile(
    r"\b(?:image|picture|crop|photo|figure|panel|call|step|rule|criterion)\s*(?:no\.?\s*)?$", re.IGNORECASE
)
"""Before a number that identifies something: "Image 1: the sign"."""
_COUNTS = re.compile(r"\s+(?!(?:or|if|when|unless|would|could|to|and)\b)[a-z]", re.IGNORECASE)
"""After a whole number that counts things: "1 cup"."""
_BLANK = " \t\r\n\ufeff"
_THOUGHTS = re.compile(r"(?:<think>.*?</think>\s*)+", re.DOTALL)
_NO_END = re.compile(r"^[ \t]*<think>", re.MULTILINE)
_BEGINS = re.compile(
    r"\W*(?:(?:verdict|answer|score|grade)\W+)?"
    r"(?:(?:TRUE|FALSE)\b(?!\s*(?:\?|or\b))|[ABC]\s*(?:[.:;\n]|$)|0?\.\d|0\b|judge>|correct\s*:)",
    re.IGNORECASE,
)
"""A reply that begins with its verdict: what follows explains it and may quote, but is not a thought."""
NEAR = 60
"""How many characters before a mark are examined."""


def behind_thoughts(reply: str) -> str:
    """A reply without its thoughts; empty if the thoughts do not end.

    Some servers strip the opening tag of the thoughts: then everything before the closing tag is
    thoughts, unless it is a verdict or an open quotation. Tags in quotation marks are ignored.
    """
    text = reply.strip(_BLANK)
    head, end, rest = text.partition("</think>")
    if end and "<think>" not in head and not _BEGINS.match(head) and not _opens_quotation(head):
        text = rest
    text = _THOUGHTS.sub(_without, text).strip(_BLANK)
    return "" if _NO_END.search(text) else text


def _without(thoughts: re.Match[str]) -> str:
    """What replaces thoughts: a newline, or the thoughts themselves if they are quoted."""
    return thoughts[0] if _opens_quotation(thoughts.string[: thoughts.start()]) else "\n"


def _opens_quotation(text: str) -> bool:
    """Whether a quotation is still open at the end of the last line."""
    line = text.rpartition("\n")[2]
    return line.count('"') % 2 == 1 or line.rfind("\u201c") > line.rfind("\u201d")


def read_level(reply: str) -> Level | None:
    """The level in a reply to `evidence_prompt`, or None if there is none or several are weighed."""
    return _number(reply, _LEVELS)


def read_target(reply: str) -> bool | None:
    """The label in a reply to `target_prompt`, or None if there is none or both are weighed."""
    return _number(reply, _LABELS)


def read_same(reply: str) -> bool | None:
    """The verdict in a reply to `answer_prompt`, or None if there is none or both are weighed."""
    text = _bare(reply)
    found = list(SAME_MARKS.finditer(text))
    if len({mark[0].upper() for mark in found}) != 1 or any(_before(_WEIGHED, text, mark) for mark in found):
        return None
    return _SAME[found[0][0].upper()] if any(_is_verdict(text, mark) for mark in found) else None


def read_class(reply: str) -> str | None:
    """The only class (A, B or C) in a reply, or None if it names several or states none as a verdict.

    "A city in France" begins with an article, and "vitamin C" is a name.
    """
    text = _bare(reply)
    found = list(CLASS_MARKS.finditer(text))
    if len({mark[0] for mark in found}) != 1:
        return None
    alone = not re.search(r"\w", CLASS_MARKS.sub("", text))
    return found[0][0] if alone or any(_is_verdict(text, mark) for mark in found) else None


def _number(reply: str, meanings: Mapping[float, T]) -> T | None:
    """The meaning of the only number in a reply that is a verdict.

    A whole number counts only if it is stated as a verdict: "1 cup" is not a score. A fraction is always
    about the score, and one without a meaning (0.75) makes the reply unreadable.
    """
    text = _OF_ONE.sub("", _bare(reply))
    said: set[float] = set()
    for mark in _NUMBER.finditer(text):
        value, fraction = float(mark[0]), "." in mark[0]
        if not fraction and _before(_NAMES, text, mark):
            continue
        if _before(_WEIGHED, text, mark) or _WEIGHS.match(text, mark.end()):
            return None
        if fraction or _is_verdict(text, mark):
            said.add(value)
        elif value in meanings and not _COUNTS.match(text, mark.end()):
            return None
    return meanings.get(said.pop()) if len(said) == 1 else None


def _is_verdict(text: str, mark: re.Match[str]) -> bool:
    return _before(_VERDICT_FOLLOWS, text, mark) and bool(_VERDICT_ENDS.match(text, mark.end()))


def _before(pattern: re.Pattern[str], text: str, mark: re.Match[str]) -> bool:
    """Whether the text just before a mark matches the pattern."""
    return bool(pattern.search(text, max(0, mark.start() - NEAR), mark.start()))


def _bare(reply: str) -> str:
    """A reply without its thoughts and its markup."""
    return _MARKUP.sub("", behind_thoughts(reply)).strip()
