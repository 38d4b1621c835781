"""The running text of a Wikipedia article: its markup taken out, as far as a search index needs it."""

import html
import re
from bisect import bisect_left
from collections.abc import Sequence, Set
from typing import NamedTuple

HIDDEN_SPACES = frozenset({"file", "image", "category"})
"""Namespaces whose links show no words, in lower case: every wiki knows them by these names, too."""

_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_DROPPED = re.compile(
    r"<(/?)(ref|math|gallery|timeline|score|syntaxhighlight|source|imagemap)\b([^<>]*)>", re.IGNORECASE
)
"""Tags of elements whose content is not running text."""
_PARAGRAPH_END = re.compile(r"\n[ \t]*\n|\n(?==)")
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>")
_FENCE = re.compile(r"\{\{|\}\}|\{\||\|\}(?!\})")
"""Where a template or a table begins or ends; `|}}` ends a template whose last argument is empty."""
_BRACKETS = re.compile(r"\[\[|\]{2,}")
_DEEPEST = 40
"""Links within links; ours. Those around them are not links, so that time stays in proportion to the text."""
_URL = re.compile(r"\[(?:https?:|ftp:|mailto:)?//[^\s\[\]]*+[ \t]*+([^\[\]\n]*+)\]")
_LANGUAGE = re.compile(r"[a-z]{2,3}(?:-[a-z]+)*|simple")
"""Of a link to the same article elsewhere, `de:`; titles (`It: Chapter Two`) begin with a capital."""
_FILE = re.compile(
    r"\.(?:jpe?g|png|gif|svg|tiff?|webp|xcf|og[gav]|opus|web[mp]|mp[34]|wav|flac|midi?|pdf|djvu)\s*\Z",
    re.IGNORECASE,
)
"""How a link to a file ends, whatever its wiki calls files."""
_HEADING = re.compile(r"^=[^\n]*=[ \t]*$", re.MULTILINE)
_MARKS = re.compile(r"'{2,}|__[A-Z]+__|^[*#:;]+[ \t]*", re.MULTILINE)
_SPACES = re.compile(r"\s+")


class Plain(NamedTuple):
    """What an article says."""

    text: str
    unclosed: bool
    """Whether a template, table, element or comment is never closed, so that words may be lost with it."""


class _Span(NamedTuple):
    """Markup that is taken out."""

    start: int
    end: int | None
    """None: it is never closed."""


def plain_text(wikitext: str, hidden: Set[str] = HIDDEN_SPACES) -> Plain:
    """The sentences of an article on one line, without templates, tables, references, files and headings.

    Links keep the words that they show. What is never closed is markup to the end of its paragraph, for one
    typing error must not cost the rest of the article; a comment to the end, as readers see it.

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
    unclosed = bool(comments) or any(span.end is None for span in (*elements, *fences))
    text = _URL.sub(r"\1", _without_links(text, hidden))
    text = _HEADING.sub(" ", text)
    text = _MARKS.sub("", text)
    return Plain(_SPACES.sub(" ", html.unescape(_TAG.sub(" ", text))).strip(), unclosed)


def _elements(text: str) -> list[_Span]:
    """Elements without running text, each to the next end tag of its name; tags within one are its content.

    One is never closed if another of its name begins before that end tag, and a paragraph ends, too.
    """
    tags = list(_DROPPED.finditer(text))
    paragraphs = [found.start() for found in _PARAGRAPH_END.finditer(text)] if tags else []
    ends: list[tuple[re.Match[str] | None, re.Match[str] | None]] = []
    next_end, next_start = dict[str, re.Match[str]](), dict[str, re.Match[str]]()
    for tag in reversed(tags):
        name = tag[2].lower()
        ends.append((next_end.get(name), next_start.get(name)))
        if not tag[3].endswith("/"):
            (next_end if tag[1] else next_start)[name] = tag
    spans, done = list[_Span](), 0
    for tag, (end, start) in zip(tags, reversed(ends), strict=True):
        if tag.start() < done or (tag[1] and not tag[3].endswith("/")):
            continue
        if tag[3].endswith("/"):
            spans.append(_Span(tag.start(), tag.end()))
            continue
        if end is not None and start is not None and start.start() < end.start():
            place = bisect_left(paragraphs, tag.end())
            end = end if place == len(paragraphs) or end.start() <= paragraphs[place] else None
        spans.append(_Span(tag.start(), None if end is None else end.end()))
        done = tag.end() if end is None else end.end()
    return spans


def _fences(text: str) -> list[_Span]:
    """Templates and tables, however deep."""
    spans, starts = [], list[int]()
    for fence in _FENCE.finditer(text):
        if fence[0] in ("{{", "{|"):
            starts.append(fence.start())
        elif starts:
            spans.append(_Span(starts.pop(), fence.end()))
    return sorted([*spans, *(_Span(start, None) for start in starts)], key=lambda span: span.start)


def _without(text: str, spans: Sequence[_Span], instead: str) -> str:
    """The text without spans, which are in order and may lie in each other."""
    paragraphs = [found.start() for found in _PARAGRAPH_END.finditer(text)] if spans else []
    kept, end = [], 0
    for span in spans:
        if span.start >= end:
            kept += [text[end : span.start], instead]
        last = span.end
        if last is None:
            place = bisect_left(paragraphs, span.start)
            last = paragraphs[place] if place < len(paragraphs) else len(text)
        end = max(end, last)
    return "".join([*kept, text[end:]])


def _without_links(text: str, hidden: Set[str]) -> str:
    """With the words of links in their place, in one pass: captions of files have links in them."""
    open_links: list[list[str]] = [[]]  # the text around all links, then a link each, the innermost last
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
        open_links[-1].append("]" * odd)  # that of a URL in the link
        for _ in range(pairs):
            if len(open_links) == 1:
                open_links[0].append("]]")
            else:
                link = "".join(open_links.pop())
                open_links[-1].append(_words_of(link, hidden))
    open_links[-1].append(text[end:])
    return "[[".join("".join(parts) for parts in open_links)


def _words_of(link: str, hidden: Set[str]) -> str:
    """What a link shows: titles have colons, too (`Star Wars: Episode IV`)."""
    target, _, words = link.partition("|")
    space, colon, name = target.strip().partition(":")
    if colon and space and (_is_hidden(space, hidden) or _FILE.search(name)):
        return ""
    return (words or target).lstrip(":")


def _is_hidden(space: str, hidden: Set[str]) -> bool:
    return space.replace("_", " ").strip().lower() in hidden or _LANGUAGE.fullmatch(space) is not None
