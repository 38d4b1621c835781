"""Wikipedia as a corpus: the articles of a dump, cut into passages of equal word count.

The paper on training search agents only says that its corpus is a local Wikipedia (Dong et al. 2026, §4.1);
passages of 100 words under the title of their article follow Karpukhin et al. 2020 (arXiv:2004.04906, §4.1),
on which the published `wiki-18` corpora of search agents are based.
"""

import bz2
import gzip
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from vtune.data.formats.source import read_rows
from vtune.data.wikitext import HIDDEN_SPACES, plain_text
from vtune.errors import DataError
from vtune.files.reading import check_input
from vtune.tools.scripts import UNBROKEN

DUMPS = (".xml", ".bz2", ".gz")
"""File endings of MediaWiki exports: plain or compressed XML."""

_HIDDEN_KEYS = ("6", "14")
"""MediaWiki's namespace numbers of files and categories."""
_OPENING = r"(\[{\u2018\u201c\xab\uff08\uff3b\uff5b\u3008\u300a\u300c\u300e\u3010\u3014\u3016"
"""Opening brackets and quotation marks, which belong to the following text; for use in a character class."""
_WORD = re.compile(
    rf"[^\w\s]*[{UNBROKEN}]{{1,2}}[^\w\s{_OPENING}]*"
    rf"|[^\s{UNBROKEN}]+(?:(?<![{_OPENING}])|(?![{_OPENING}{UNBROKEN}]))"
)
"""A run of text between spaces; in scripts without spaces two characters, as in an index, with marks."""


@dataclass(frozen=True, slots=True)
class Article:
    """A page of an encyclopaedia."""

    id: str
    title: str
    text: str
    """Plain text, without markup."""
    unclosed: bool = False
    """Whether it contains markup that is never closed (see `vtune.data.wikitext`)."""


def read_articles(path: Path) -> Iterator[Article]:
    """The articles of a dump, one in memory at a time.

    Args:
        path: A file of dumps.wikimedia.org (`…-pages-articles.xml.bz2`; redirects and pages that are not
            articles are left out); or rows with `title`, `text` and optionally `id`, as in
            `wikimedia/wikipedia`: JSON lines or Parquet, a file or a folder.

    Raises:
        DataError: If it cannot be read; names file and row.
    """
    if path.is_file() and path.suffix in DUMPS:
        yield from _dumped(path)
        return
    if path.suffix == ".tsv":
        raise DataError(
            f"{path} is a table, not articles", fix="`vtune data index` takes passages as they are"
        )
    for place, row in read_rows(path):
        where = place.where
        if isinstance(row, DataError):
            raise DataError(row.what, where=where, fix=row.fix)
        title, text = row.get("title"), row.get("text")
        if not isinstance(title, str) or not isinstance(text, str):
            raise DataError(
                "an article needs `title` and `text`",
                where=where,
                fix="give rows as wikimedia/wikipedia has them, or a dump; passages are indexed as they are",
            )
        identity = row.get("id")
        yield Article(place.id if identity is None else str(identity), title, " ".join(text.split()))


def passages(article: Article, words: int) -> Iterator[str]:
    """The text in pieces of `words` words, the last one shorter.

    Words are separated by spaces; in Chinese, Japanese, Thai, Lao, Khmer and Burmese, which have none, two
    characters count as a word.
    """
    ends = [word.end() for word in _WORD.finditer(article.text)]
    start = 0
    for last in range(words - 1, len(ends) + words - 1, words):
        end = ends[min(last, len(ends) - 1)]
        yield article.text[start:end].strip()
        start = end


def _dumped(path: Path) -> Iterator[Article]:
    opened: Any = {".bz2": bz2.open, ".gz": gzip.open}.get(path.suffix, open)
    try:
        check_input(path)
        with opened(path, "rb") as stream:
            yield from _pages(stream)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"cannot read {path}: {error}", fix="download the file again") from None
    except ElementTree.ParseError as error:
        raise DataError(
            f"not a complete MediaWiki dump: {error}", where=str(path), fix="download the file again"
        ) from None


def _pages(stream: Any) -> Iterator[Article]:
    hidden = set(HIDDEN_SPACES)
    events = ElementTree.iterparse(stream, events=("start", "end"))
    _, root = next(events)
    space = root.tag.removesuffix("mediawiki")  # each version of the format has its own namespace
    if root.tag == space:
        raise ElementTree.ParseError(f"the root is <{root.tag}>, not <mediawiki>")
    for event, page in events:
        if event == "end" and page.tag == f"{space}namespace" and page.get("key") in _HIDDEN_KEYS:
            hidden.add((page.text or "").lower())
        if event != "end" or page.tag != f"{space}page":
            continue
        if page.findtext(f"{space}ns") == "0" and page.find(f"{space}redirect") is None:
            if len(page.findall(f"{space}revision")) > 1:
                raise DataError(
                    f"the dump has several revisions of {page.findtext(f'{space}title')!r}",
                    fix="give a dump of the current ones: …-pages-articles.xml.bz2",
                )
            said = plain_text(page.findtext(f"{space}revision/{space}text") or "", hidden)
            number, title = page.findtext(f"{space}id") or "", page.findtext(f"{space}title") or ""
            yield Article(number, title, said.text, said.unclosed)
        root.clear()  # otherwise the whole dump would stay in memory
