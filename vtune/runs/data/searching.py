"""`vtune data search`: what an index finds, with scores, before a run searches it."""

from collections.abc import Sequence
from math import inf
from pathlib import Path
from typing import Any

from vtune.errors import DataError, RecipeError
from vtune.files.reading import read_bytes
from vtune.tools.observation import encodable
from vtune.tools.passages import IndexEncoder, open_passages
from vtune.tools.picture_index import PictureIndex
from vtune.tools.pictures import Match
from vtune.tools.store import read_manifest
from vtune.tools.text_search import LONGEST_QUERY


def search_index(
    folder: Path, queries: Sequence[str], *, top_k: int, encoder: IndexEncoder | None = None
) -> dict[str, Any]:
    """Search an index of passages or of pictures, as the search tools do, but with scores.

    Args:
        folder: What `vtune data index` wrote.
        queries: Texts; for an index of pictures, paths of pictures.
        top_k: Results per query, at most.
        encoder: Where the index's model is now, and its device; None: where the index says, on the CPU.

    Returns:
        `index`, `kind` (`passages`, `dense` or `pictures`), and `results`: for each `query`, what was
        `found`, best first: `score`, `id`, `title` and `text`. Pictures need no lowest score; their ids are
        their places among what was indexed, from 0.

    Raises:
        DataError: If there is no complete index, its model is missing or a different one, or a query is
            empty, too long, or not a picture.
        MissingExtra: If a package is not installed.
        RecipeError: If an encoder is given for an index without one.
    """
    facts = read_manifest(folder, "passages", "dense", "pictures")
    if encoder is not None and encoder.model is None and facts.get("encoder") is None:
        raise RecipeError(f"no model embeds anything in the index in {folder}", fix="leave --device out")
    kind = facts["kind"]
    search = _pictures if kind == "pictures" else _passages
    found = search(folder, queries, top_k, encoder)
    results = [{"query": query, "found": rows} for query, rows in zip(queries, found, strict=True)]
    return {"index": str(folder), "kind": kind, "results": results}


def _passages(
    folder: Path, queries: Sequence[str], top_k: int, encoder: IndexEncoder | None
) -> list[list[dict[str, Any]]]:
    for number, query in enumerate(queries, start=1):
        if not query.strip() or len(query) > LONGEST_QUERY:
            raise DataError(
                f"query {number} is {'longer than the tool allows' if query.strip() else 'empty'}",
                fix=f"give 1 to {LONGEST_QUERY} characters",
            )
    index = open_passages(folder, encoder)
    return [
        [
            {"score": score, "id": passage.id, "title": passage.title, "text": passage.text}
            for passage, score in found
        ]
        for found in index.find_scored([encodable(query) for query in queries], top_k)
    ]


def _pictures(
    folder: Path, queries: Sequence[str], top_k: int, encoder: IndexEncoder | None
) -> list[list[dict[str, Any]]]:
    index = PictureIndex(folder, min_score=-inf, encoder=encoder)
    return [
        [
            {"score": match.score, "id": str(number), "title": match.title, "text": match.text}
            for number, match in _alike(index, query, top_k)
        ]
        for query in queries
    ]


def _alike(index: PictureIndex, query: str, top_k: int) -> list[tuple[int, Match]]:
    fix = "an index of pictures is searched with picture files"
    try:
        return index.find_numbered(read_bytes(Path(query)), top_k)
    except OSError as error:
        raise DataError(f"no picture can be read: {error.strerror}", where=query, fix=fix) from None
    except DataError as error:
        raise DataError(error.what, where=query, fix=error.fix or fix) from None
