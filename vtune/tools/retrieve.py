"""Search-R1's retrieval protocol, which verl's search tool speaks too: `POST /retrieve` with many queries."""

from collections.abc import Iterable, Mapping
from typing import Any

from vtune.errors import DataError, ServiceError
from vtune.tools.http import Patience, Poster
from vtune.tools.passage import TEXTS, Passage, passage_from
from vtune.tools.remote_settings import bearer

ROUTE = "/retrieve"
"""A service whose URL ends so is asked in this protocol."""

FORM = 'each query\'s result is a list of {"document": {"id": "…", "contents": "…"}, "score": 1.0}'

TOP_K = 3
"""Passages per query where a request has no `topk`, as in Search-R1's server."""


def packed(found: Iterable[tuple[Passage, float]], *, scores: bool) -> list[dict[str, Any]]:
    """The answer to one query, best first.

    Args:
        found: Passages with their scores.
        scores: Whether each is `{"document", "score"}`, or the document alone.

    Returns:
        Documents `{"id", "contents"}`; the title is the first line of `contents`, in quotation marks, as in
        the corpus `wiki-18`, because clients read it there; `""` for none.
    """
    rows: list[dict[str, Any]] = []
    for passage, score in found:
        document = {"id": passage.id, "contents": f'"{passage.title}"\n{passage.text}'}
        rows.append({"document": document, "score": score} if scores else document)
    return rows


def _document(row: Any) -> dict[str, Any]:
    """The document in a row: on its own where no scores are returned, and only its text on some servers.

    Raises:
        TypeError: If the row is something else.
    """
    document = row.get("document", row) if isinstance(row, dict) else row
    if isinstance(document, str):
        return {"contents": document}
    if not isinstance(document, dict):
        raise TypeError
    return document


def _is_blank(document: Mapping[str, Any]) -> bool:
    """Whether a document's text is empty, null, or only the `""` that stands for no title."""
    texts = [document[key] for key in TEXTS if isinstance(document.get(key, 0), str | None)]
    said = next((text for text in texts if text is not None), "")
    return bool(texts) and said.strip() in ("", '""')


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
        """The passages that the server finds; documents without text are left out.

        Raises:
            ServiceError: If it gives no usable answer in time.
        """
        answer = await self._poster.post({"queries": [query], "topk": top_k, "return_scores": True})
        try:
            (rows,) = answer["result"]
            if not isinstance(rows, list):
                raise TypeError
            documents = [_document(row) for row in rows]
        except (KeyError, TypeError, ValueError):
            raise ServiceError(
                f"not the answer of a retrieval server: {answer!r:.200}", where=self._url, fix=FORM
            ) from None
        passages = []
        for number, document in enumerate(documents):
            try:
                passages += [] if _is_blank(document) else [passage_from(document, "")]
            except DataError as error:
                raise ServiceError(
                    f"document {number} of a retrieval server's answer: {error.what}: {document!r:.200}",
                    where=self._url,
                    fix=FORM,
                ) from None
        return passages[:top_k]

    async def aclose(self) -> None:
        """Close its connections."""
        await self._poster.aclose()
