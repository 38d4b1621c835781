"""Text search in an index of passages (`vtune data index`): memory-mapped BM25, by bm25s."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import bm25s
import numpy as np

from vtune.errors import DataError
from vtune.tools.passage import Passage
from vtune.tools.store import Records, read_manifest
from vtune.tools.words import CUT, PAIRS, bare_words, whole_words, words


class PassageIndex:
    """An existing index; several processes may open the same folder, and share its pages.

    Raises:
        DataError: If the folder holds no complete index of passages.
    """

    together = 1
    """Queries to search at once: more would save nothing, and make others wait."""

    def __init__(self, folder: Path) -> None:
        facts = read_manifest(folder, "passages")
        self._words = _cut_as(facts, folder)
        self._records = Records(folder, "passages")
        try:
            self._bm25 = bm25s.BM25.load(folder, mmap=True)
        except (OSError, ValueError, KeyError) as error:
            raise DataError(
                f"not a complete index: {error}", where=str(folder), fix="build it again"
            ) from None
        self.passages: int = facts["passages"]
        if not len(self._records) == self._bm25.scores["num_docs"] == self.passages:
            raise DataError(f"the files in {folder} do not belong together", fix="build the index again")

    async def search(self, query: str, top_k: int) -> list[Passage]:
        """The passages with the highest BM25, ties in order of the passages; none if no word matches."""
        return await asyncio.to_thread(self.find, query, top_k)

    def find(self, query: str, top_k: int) -> list[Passage]:
        """The same, synchronously."""
        return [self._passage(number) for number, _ in self.rank(query, top_k)]

    def find_scored(self, queries: Sequence[str], top_k: int) -> list[list[tuple[Passage, float]]]:
        """The same for several queries, with the scores."""
        return [
            [(self._passage(number), score) for number, score in self.rank(query, top_k)] for query in queries
        ]

    def rank(self, query: str, top_k: int) -> list[tuple[int, float]]:
        """(index of the passage, score) of the best passages, in order."""
        known = self._bm25.vocab_dict
        numbers = [known[word] for word in self._words(query) if word in known]
        if not numbers:
            return []
        scores = self._bm25.get_scores_from_ids(numbers)
        found = np.flatnonzero(scores)
        if top_k < len(found):
            values = scores[found]
            found = found[values >= np.partition(values, -top_k)[-top_k]]
        best = found[np.lexsort((found, -scores[found]))][:top_k]
        return [(int(number), float(scores[number])) for number in best]

    def _passage(self, number: int) -> Passage:
        return Passage(**json.loads(self._records[number]))

    async def aclose(self) -> None:
        """Close the files."""
        self._records.close()


def _cut_as(facts: Mapping[str, Any], folder: Path) -> Callable[[str], list[str]]:
    """The function that splits a query into words in the same way as the index was built.

    Raises:
        DataError: If it was built in a way that is not known here.
    """
    cut = facts.get("cut")
    known = {CUT: words, PAIRS: bare_words, None: whole_words}
    if cut not in known:
        raise DataError(
            f"the index splits words with {cut!r}, which is not known here",
            where=str(folder),
            fix="build it again, or search it with the vtune that built it",
        )
    return known[cut]
