"""What text searches return."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from vtune.errors import DataError
from vtune.tools.observation import encodable


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of text that may contain an answer."""

    id: str
    title: str
    text: str
    source: str = ""
    """Where and how it was read on the web; empty if it comes from an index."""


TEXTS = ("text", "contents", "passage")
"""Names of the text column in published corpora."""

_HEADED = re.compile(r'"(?P<title>[^\n]*)"\n(?P<text>.*\S.*)', re.DOTALL)


class Searcher(Protocol):
    """Anything that finds passages."""

    async def search(self, query: str, top_k: int) -> list[Passage]:
        """At most `top_k` passages, best first; [] if none match.

        Raises:
            ServiceError: If the search fails.
        """
        ...

    async def aclose(self) -> None:
        """Close everything that was opened."""
        ...


def passage_from(row: Mapping[str, Any], fallback_id: str) -> Passage:
    """The passage in a row of a corpus.

    Args:
        row: With `text`, and optionally `id` and `title`; other keys are ignored. Published corpora also call
            the text `contents` or `passage`; if the first line of `contents` is in quotation marks, as in
            the `wiki-18` of search agents, it is the title (`""`: none).
        fallback_id: The id if the row has none.

    Raises:
        DataError: If there is no text.
    """
    column = next((key for key in TEXTS if isinstance(row.get(key), str)), "")
    text = str(row.get(column, ""))
    if not text.strip():
        raise DataError(
            "a passage has no text",
            fix="each row needs `text` (or `contents`, `passage`), and may have `id` and `title`",
        )
    title, identity = row.get("title"), row.get("id")
    if title is None and column == "contents" and (headed := _HEADED.fullmatch(text)):
        title, text = headed["title"], headed["text"]
    if isinstance(identity, float) and identity.is_integer():
        identity = int(identity)  # a table may hold its numbers as 5.0
    if not isinstance(title, str | None):
        raise DataError(f"`title` must be a text, and is {title!r:.60}", fix="fix the row")
    if not isinstance(identity, str | int | None):
        raise DataError(f"`id` must be a text or a whole number, and is {identity!r:.60}", fix="fix the row")
    return Passage(
        fallback_id if identity is None else encodable(str(identity)), encodable(title or ""), encodable(text)
    )


def numbered(passages: Sequence[Passage]) -> str:
    """Passages as shown to the policy and to a summariser."""
    parts = []
    for number, passage in enumerate(passages, start=1):
        head = f"{number}. {passage.title}\n" if passage.title else f"{number}. "
        parts.append(head + passage.text.strip())
    return "\n\n".join(parts)
