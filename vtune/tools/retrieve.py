"""Search-R1's retrieval protocol, which verl's search tool speaks too: `POST /retrieve` with many queries."""

from collections.abc import Iterable
from typing import Any

from vtune.errors import DataError, ServiceError
from vtune.tools.http import Patience, Poster
from vtune.tools.passage import Passage, passage_from
from vtune.tools.remote_settings import bearer

ROUTE = "/retrieve"
"""A service whose URL ends so is asked in this protocol."""

TOP_K = 3
"""Passages per query where a request has no `topk`, as in Search-R1's server."""


def packed(found: Iterable[tuple[Passage, float]], *, scores: bool) -> list[dict[str, Any]]:
    """The answer to one query, best first.

    Args:
        found: Passages with their scores.
        scores: Whether each is `{"document", "score"}`, or the document alone.

    Returns:
        Documents `{"id", "contents"}`; the title is the first line of `contents`, in quotation marks, as in
        the corpus `wiki-18`, because clients read it there.
    """
    rows: list[dict[str, Any]] = []
    for passage, score in found:
        contents = f'"{passage.title}"\n{passage.text}' if passage.title else passage.text
        document = {"id": passage.id, "contents": contents}
        rows.append({"document": document, "score": score} if scores else document)
    return rows


class RetrievedPassages:
    """An index of passages behind a retrieval server.

    Args:
        url: Ends with `ROUTE`.
        patience: How long to wait.
        token: Sent as a bearer token; None sends none.
    """

    def __init__(self, url: str, patience: Patience, *, token: str | None) -> None:
        self._url = url
        self._poster = Poster(url, patience, headers=bearer(token), name="the retrieval server")

    async def search(self, query: str, top_k: int) -> list[Passage]:
        """The passages that the server finds.

        Raises:
            ServiceError: If it gives no usable answer in time.
        """
        answer = await self._poster.post({"queries": [query], "topk": top_k, "return_scores": True})
        try:
            (rows,) = answer["result"]
            # Servers that return no scores leave out the level of `document`.
            return [passage_from(row.get("document", row), "") for row in rows][:top_k]
        except (KeyError, TypeError, ValueError, AttributeError, DataError):
            raise ServiceError(
                f"not the answer of a retrieval server: {str(answer)[:200]!r}", where=self._url
            ) from None

    async def aclose(self) -> None:
        """Close its connections."""
        await self._poster.aclose()
