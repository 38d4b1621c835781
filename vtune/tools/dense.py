"""Text search in a dense index of passages (`vtune data index --encoder`): an encoder's vectors, usearch."""

import asyncio
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from usearch.index import search

from vtune.errors import DataError
from vtune.tools.dense_build import VECTORS, TextEncoder, graph_of, open_graph, starts_of
from vtune.tools.passage import Passage
from vtune.tools.store import Records, check_same_encoder, read_manifest

Metric = Literal["ip", "cos"]
"""`cos` if the encoder's vectors have length 1: in half precision they no longer do."""


class DenseIndex:
    """An existing dense index, memory-mapped: several processes share its pages.

    Args:
        folder: Folder of the index.
        encoder: The encoder that embedded its passages.

    Raises:
        DataError: If the folder contains no complete dense index, or a different encoder built it.
    """

    together = 32
    """Queries to search at once; ours: an encoder on a CPU then needs a third of the time per query."""

    def __init__(self, folder: Path, encoder: TextEncoder) -> None:
        facts = read_manifest(folder, "dense")
        check_same_encoder(folder, facts["encoder"], encoder.facts)
        self.passages: int = facts["passages"]
        self._encoder = encoder
        self._lock = threading.Lock()
        self._records = Records(folder, "passages")
        starts = starts_of(self.passages, facts["part"])
        metric: Metric = "cos" if facts["encoder"].get("normalise") else "ip"
        try:
            self._parts: list[Exact | _Graph] = (
                [_Graph(graph_of(folder, number), metric) for number, _ in enumerate(starts)]
                if facts["method"] == "hnsw"
                else _exact(folder, self.passages, facts["width"], starts, metric)
            )
        except (OSError, ValueError) as error:
            raise DataError(
                f"not a complete index: {error}", where=str(folder), fix="build it again"
            ) from None
        held = sum(part.passages for part in self._parts)
        if not len(self._records) == held == self.passages or facts["width"] != encoder.width:
            raise DataError(f"the files in {folder} do not belong together", fix="build the index again")

    async def search(self, query: str, top_k: int) -> list[Passage]:
        """The passages with the largest inner product with the query, ties in order of the passages.

        There are always some: a dense index cannot know that it has no answer.
        """
        return await asyncio.to_thread(self.find, query, top_k)

    def find(self, query: str, top_k: int) -> list[Passage]:
        """The same, synchronously."""
        (found,) = self.find_scored([query], top_k)
        return [passage for passage, _ in found]

    def find_scored(self, queries: Sequence[str], top_k: int) -> list[list[tuple[Passage, float]]]:
        """The same for several queries, embedded at once, with the scores."""
        return [
            [
                (Passage(**json.loads(self._records[number])), score)
                for number, score in self.nearest(vector, top_k)
            ]
            for vector in self._encoder.queries(queries)
        ]

    def rank(self, query: str, top_k: int) -> list[tuple[int, float]]:
        """(index of the passage, score) of the best passages, in order."""
        return self.nearest(self._encoder.queries([query])[0], top_k)

    def nearest(self, vector: NDArray[np.float32], top_k: int) -> list[tuple[int, float]]:
        """The same for a vector, shape (width,)."""
        wanted = vector.astype(np.float16)
        with self._lock:  # usearch's threads serve one query at a time
            found = [part.nearest(wanted, top_k) for part in self._parts]
        numbers = np.concatenate([keys for keys, _ in found])
        scores = np.concatenate([scores for _, scores in found])
        best = np.lexsort((numbers, -scores))[:top_k]
        return [(int(numbers[place]), float(scores[place])) for place in best]

    async def aclose(self) -> None:
        """Close the files."""
        self._records.close()
        self._parts = []


_Found = tuple[NDArray[np.int64], NDArray[np.float32]]
"""Indices of passages, and their scores."""


class Exact:
    """A part whose vectors are all compared with the query.

    Args:
        vectors: Shape (entries, width).
        start: Index of its first entry.
        metric: How vectors are compared.
    """

    def __init__(self, vectors: NDArray[np.float16], start: int, metric: Metric) -> None:
        self._vectors, self._start, self._metric = vectors, start, metric
        self.passages = len(vectors)

    def nearest(self, vector: NDArray[np.float16], top_k: int) -> _Found:
        """The entries with the largest inner product or cosine with a vector, shape (width,)."""
        count = min(top_k, self.passages)
        found = search(self._vectors, vector[None], count, self._metric, exact=True)
        return _scored(found, self._start)


class _Graph:
    """A part that is searched along a graph."""

    def __init__(self, path: Path, metric: Metric) -> None:
        self._graph = open_graph(path)
        self._graph.metric = metric
        self.passages = len(self._graph)

    def nearest(self, vector: NDArray[np.float16], top_k: int) -> _Found:
        return _scored(self._graph.search(vector[None], min(top_k, self.passages)), 0)


def _scored(found: Any, start: int) -> _Found:
    """Usearch's distance is 1 minus the inner product or the cosine."""
    return np.ravel(found.keys).astype(np.int64) + start, 1 - np.ravel(found.distances)


def _exact(folder: Path, count: int, width: int, starts: range, metric: Metric) -> list[Exact | _Graph]:
    path = folder / VECTORS
    if path.stat().st_size != 2 * count * width:
        raise ValueError(f"{VECTORS} is cut short")
    # A plain view: usearch does not accept numpy's memmap class.
    vectors = np.asarray(np.memmap(path, dtype=np.float16, mode="r", shape=(count, width)))
    return [Exact(vectors[start : start + starts.step], start, metric) for start in starts]
