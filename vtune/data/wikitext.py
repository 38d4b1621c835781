"""The plain text of a Wikipedia article: markup removed, as far as a search index needs it."""

import html
import re
from bisect import bisect_left
from collections.abc import Sequence, Set
from functools import cached_property
from typing import NamedTuple

HIDDEN_SPACES = frozenset({"file", "image", "category"})
"""Namespaces whose links show no words, in lower case; these English names work in every wiki."""

_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_DROPPED = re.compile(
    r"<(/?)(ref|math|gallery|timeline|score|syntaxhighlight|source|imagemap)\b([^<>]*)>", re.IGNORECASE
)
"""Tags of elements whose content is not running text."""
_PARAGRAPH_END = re.compile(r"\n[ \t]*\n|\n(?==)")
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
_FENCE = re.compile(r"\{\{|\}\}|\{\||\|\}(?!\})")
"""Start or end of a template or table; `|}}` ends a template whose last argument is empty."""
_BRACKETS = re.compile(r"\[\[|\]{2,}")
_DEEPEST = 40
"""Limit on nested links (ours). Outer ones are not treated as links, so that time stays linear."""
_URL = re.compile(r"\[(?:https?:|ftp:|mailto:)?//[^\s\[\]]*+[ \t]*+([^\[\]\n]*+)\]")
_LANGUAGE = re.compile(r"[a-z]{2,3}(?:-[a-z]+)*|simple")
"""Prefix of a link to the article in another language, `de:`; titles (`It: Chapter Two`) are capitalised."""
_FILE = re.compile(
    r"\.(?:jpe?g|png|gif|svg|tiff?|webp|xcf|og[gav]|opus|web[mp]|mp[34]|wav|flac|midi?|pdf|djvu)\s*\Z",
    re.IGNORECASE,
)
"""Ending of a link to a file, whatever its wiki calls the namespace."""
_HEADING = re.compile(r"^=[^\n]*=[ \t]*$", re.MULTILINE)
_MARKS = re.compile(r"'{2,}|__[A-Z]+__|^[*#:;]+[ \t]*", re.MULTILINE)
_SPACES = re.compile(r"\s+")


_Tag = re.Match[str]


class Plain(NamedTuple):
    """The text of an article."""

    text: str
    unclosed: bool
    """Whether a template, table, element or comment is never closed, so that words may be lost with it."""


class _Span(NamedTuple):
    """Markup to remove."""

    start: int
    end: int
    closed: bool
    """If not closed, it ends with its paragraph."""


def plain_text(wikitext: str, hidden: Set[str] = HIDDEN_SPACES) -> Plain:
    """The sentences of an article on one line, without templates, tables, references, files and headings.

    Links keep the words that they show. Unclosed markup ends with its paragraph, so that one typo does not
    cost the rest of the article; an unclosed comment runs to the end, as readers see it.

    Args:
        wikitext: MediaWiki markup.
        hidden: Namespaces of files and categories in the language of the wiki, in lower case.
    """
    comments = sum(not comment[0].endswith("-->") for comment in _COMMENT.finditer(wikitext))
    text = _COMMENT.sub("", wikitext)
    elements = _elements(text)
    text = _without(text, elements, " ")
    fences = _fences(text)
    text = _without(text, fences, "")
    unclosed = bool(comments) or not all(span.closed for span in (*elements, *fences))
    text = _URL.sub(r"\1", _without_links(text, hidden))
    text = _HEADING.sub(" ", text)
    text = _MARKS.sub("", text)
    return Plain(_SPACES.sub(" ", html.unescape(_TAG.sub(" ", text))).strip(), unclosed)


def _elements(text: str) -> list[_Span]:
    """Elements without running text, except those inside others, where a tag is only text.

    An element ends at the next end tag of its name. If another element begins before that, and the paragraph
    ends, it was never closed.
    """
    tags = list(_DROPPED.finditer(text))
    paragraphs = _Paragraphs(text)
    spans, end = [], 0
    for tag, (closing, following) in zip(tags, _ahead(tags), strict=True):
        if tag[1] or tag.start() < end:
            continue
        end, closed = tag.end(), True
        if not tag[3].endswith("/"):
            until = len(text) if closing is None else closing.start()
            last = until if closing and closing is following else paragraphs.end_outside(end, until)
            closed = closing is not None and last >= until
            end = closing.end() if closing is not None and closed else last
        spans.append(_Span(tag.start(), end, closed))
    return spans


def _ahead(tags: Sequence[_Tag]) -> list[tuple[_Tag | None, _Tag | None]]:
    """For each tag: the next end tag of its name, and the next tag of its name of either kind."""
    found, ends, following = [], dict[str, _Tag](), dict[str, _Tag]()
    for tag in reversed(tags):
        name = tag[2].lower()
        found.append((ends.get(name), following.get(name)))
        if tag[1]:
            ends[name] = following[name] = tag
        elif not tag[3].endswith("/"):
            following[name] = tag
    return found[::-1]


class _Paragraphs:
    """Finds where the paragraphs of a text end."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def _ends(self) -> list[int]:
        return [*(found.start() for found in _PARAGRAPH_END.finditer(self._text)), len(self._text)]

    @cached_property
    def _closed_fences(self) -> list[_Span]:
        return [span for span in _fences(self._text) if span.closed]

    def end(self, start: int) -> int:
        """The end of the paragraph that contains a position."""
        return self._ends[bisect_left(self._ends, start)]

    def end_outside(self, start: int, until: int) -> int:
        """The first paragraph end after `start` outside templates and tables that begin before `until`."""
        end, fences = self.end(start), self._closed_fences
        first = bisect_left(fences, start, key=lambda span: span.start)
        for n in range(first, len(fences)):  # a slice would copy them all
            fence = fences[n]
            if fence.start >= min(end, until):
                break
            if fence.end > end:
                end = self.end(fence.end)
        return end


def _fences(text: str) -> list[_Span]:
    """Templates and tables, at any depth."""
    spans, starts, paragraphs = [], list[int](), _Paragraphs(text)
    for fence in _FENCE.finditer(text):
        if fence[0] in ("{{", "{|"):
            starts.append(fence.start())
        elif starts:
            spans.append(_Span(starts.pop(), fence.end(), closed=True))
    unclosed = (_Span(start, paragraphs.end(start), closed=False) for start in starts)
    return sorted([*spans, *unclosed], key=lambda span: span.start)


def _without(text: str, spans: Sequence[_Span], instead: str) -> str:
    """The text without spans, which are sorted and may be nested."""
    kept, end = [], 0
    for span in spans:
        if span.start >= end:
            kept += [text[end : span.start], instead]
        end = max(end, span.end)
    return "".join([*kept, text[end:]])


def _without_links(text: str, hidden: Set[str]) -> str:
    """The text with links replaced by their words, in one pass: captions of files contain links."""
    open_links: list[list[str]] = [[]]  # the text outside links, then one list per open link, innermost last
    end = 0
    for found in _BRACKETS.finditer(text):
        open_links[-1].append(text[end : found.start()])
        end = found.end()
        if found[0] == "[[":
            open_links.append([])
            if len(open_links) > _DEEPEST + 1:
                open_links[0] += ["[[", *open_links.pop(1)]
            continue
        pairs, odd = divmod(len(found[0]), 2)
        open_links[-1].append("]" * odd)  # closes a URL inside the link
        for _ in range(pairs):
            if len(open_links) == 1:
                open_links[0].append("]]")
            else:
                link = "".join(open_links.pop())
                open_links[-1].append(_words_of(link, hidden))
    open_links[-1].append(text[end:])
    return "[[".join("".join(parts) for parts in open_links)


def _words_of(link: str, hidden: Set[str]) -> str:
    """The words that a link shows. Titles may contain colons, too (`Star Wars: Episode IV`)."""
    target, _, words = link.partition("|")
    space, colon, name = target.strip().partition(":")
    if colon and space and (_is_hidden(space, hidden) or _FILE.search(name)):
        return ""
    return (words or target).lstrip(":")


def _is_hidden(space: str, hidden: Set[str]) -> bool:
    return space.replace("_", " ").strip().lower() in hidden or _LANGUAGE.fullmatch(space) is not None
