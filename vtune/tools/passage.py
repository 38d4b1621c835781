"""What text searches return."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from vtune.errors import DataError
from vtune.tools.observation import encodable


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of text that answers, or does not."""

    id: str
    title: str
    text: str
    source: str = ""
    """Where it was read on the web, and how; empty for what an index has."""


TEXTS = ("text", "contents", "passage")
"""What published corpora call the text of a passage."""

_HEADED = re.compile(r'"(?P<title>[^\n]+)"\n(?P<text>.*\S.*)', re.DOTALL)


class Searcher(Protocol):
    """Whatever finds passages."""

    async def search(self, query: str, top_k: int) -> list[Passage]:
        """At most `top_k` passages, best first; [] where none fits.

        Raises:
            ServiceError: If it cannot tell.
        """
        ...

    async def aclose(self) -> None:
        """End what was opened."""
        ...


def passage_from(row: Mapping[str, Any], fallback_id: str) -> Passage:
    """The passage of a row of a corpus.

    Args:
        row: With `text`, and maybe `id` and `title`; other keys are left alone. Published corpora also call
            the text `contents` or `passage`; where the first line of `contents` is in quotation marks, as in
            the `wiki-18` of search agents, that is the title.
        fallback_id: Its id where the row has none.

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
    if not isinstance(title, str | None) or not isinstance(identity, str | int | None):
        raise DataError("`title` must be a text, and `id` a text or a number", fix="fix the row")
    return Passage(
        fallback_id if identity is None else encodable(str(identity)), encodable(title or ""), encodable(text)
    )


def numbered(passages: Sequence[Passage]) -> str:
    """Passages as the policy, and a summariser, read them."""
    parts = []
    for number, passage in enumerate(passages, start=1):
        head = f"{number}. {passage.title}\n" if passage.title else f"{number}. "
        parts.append(head + passage.text.strip())
    return "\n\n".join(parts)
