"""The running text of a Wikipedia article: its markup taken out, as far as a search index needs it."""

import html
import re
from collections.abc import Set

HIDDEN_SPACES = frozenset({"file", "image", "category"})
"""Namespaces whose links show no words, in lower case: every wiki knows them by these names, too."""

_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_DROPPED = re.compile(
    r"<(ref|math|gallery|timeline|score|syntaxhighlight|source|imagemap)\b[^<>]*?(?:/>|>.*?(?:</\1\s*>|\Z))",
    re.DOTALL | re.IGNORECASE,
)
"""Elements whose content is not running text."""
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


def plain_text(wikitext: str, hidden: Set[str] = HIDDEN_SPACES) -> str:
    """The sentences of an article on one line, without templates, tables, references, files and headings.

    Links keep the words that they show. What is never closed is markup to the end, as in MediaWiki.

    Args:
        wikitext: MediaWiki markup.
        hidden: Namespaces of files and categories in the language of the wiki, in lower case.
    """
    text = _COMMENT.sub("", wikitext)
    text = _DROPPED.sub(" ", text)
    text = _without_fences(text)
    text = _URL.sub(r"\1", _without_links(text, hidden))
    text = _HEADING.sub(" ", text)
    text = _MARKS.sub("", text)
    return _SPACES.sub(" ", html.unescape(_TAG.sub(" ", text))).strip()


def _without_fences(text: str) -> str:
    """Without templates and tables, however deep."""
    kept, depth, end = [], 0, 0
    for fence in _FENCE.finditer(text):
        if fence[0] in ("{{", "{|"):
            if depth == 0:
                kept.append(text[end : fence.start()])
            depth += 1
        elif depth:
            depth -= 1
            end = fence.end()
    if depth == 0:
        kept.append(text[end:])
    return "".join(kept)


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
