"""Builds an index of passages as a stream, so that a corpus never has to fit in memory.

Words become numbers; each portion of passages is sorted by word and written to disk; then all portions are
merged, one range of words after another. The result is what bm25s reads.
"""

import json
from array import array
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
from numpy.typing import NDArray

from vtune.errors import DataError
from vtune.tools.passage import Passage
from vtune.tools.store import RecordWriter, write_manifest
from vtune.tools.words import CUT, STOP_WORDS, words

K1, B = 1.5, 0.75
"""The defaults of bm25s."""

PORTION = 4_000_000
"""Number of words sorted in memory at a time; ours: about 200 MB."""

MERGED = 4_000_000
"""Number of postings merged in memory at a time, unless a single word has more; ours: about 250 MB."""

_POSTING = np.dtype([("word", np.int32), ("passage", np.int32), ("count", np.int32)])

Postings = NDArray[Any]


def build_index(passages: Iterable[Passage], folder: Path, tick: Callable[[], None]) -> dict[str, Any]:
    """Write an index of passages into an empty folder.

    Memory holds the vocabulary, eight bytes per passage, and one portion of postings. Scores are those of
    Lucene's BM25 (Kamphuis et al. 2020, as in bm25s), computed in float64 and stored in float32.

    Args:
        passages: In order; ties in score rank in this order.
        folder: Where to write.
        tick: Called after each passage.

    Returns:
        The manifest: `kind`, `passages`, `words` (distinct ones), `postings`, `cut`.

    Raises:
        DataError: If there is no passage.
    """
    spill = _Spill(folder)
    with RecordWriter(folder, "passages") as records:
        for passage in passages:
            record = {"id": passage.id, "title": passage.title, "text": passage.text}
            records.append(json.dumps(record, ensure_ascii=False).encode())
            spill.add(f"{passage.title}\n{passage.text}")
            tick()
        spill.close()
        if not spill.lengths:
            raise DataError("the corpus has no passage", fix="give a file with rows of `text`")
    postings = _merge(spill, folder)
    facts = {
        "kind": "passages",
        "passages": len(spill.lengths),
        "words": len(spill.vocabulary),
        "postings": postings,
        "cut": CUT,
    }
    write_manifest(folder, facts)
    return facts


class _Numbers(dict[str, int]):
    """Word -> number; new words get a new number, stop words are known from the start, as -1."""

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self) - len(STOP_WORDS)
        return number


class _Spill:
    """Portions of postings on disk, each sorted by word and passage."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = _Numbers(dict.fromkeys(STOP_WORDS, -1))
        self._words = array("i")
        self._ends: list[int] = []
        """Number of words of each passage in `_words`."""
        self.lengths = array("i")
        """Number of words of each passage already on disk."""
        self.portions: list[Path] = []

    @property
    def vocabulary(self) -> dict[str, int]:
        return {word: number for word, number in self._numbers.items() if number >= 0}

    def add(self, text: str) -> None:
        """Add the next passage."""
        self._words.extend(map(self._numbers.__getitem__, words(text)))
        self._ends.append(len(self._words))
        if len(self._words) >= PORTION:
            self._flush()

    def close(self) -> None:
        """Write the last portion to disk."""
        if self._ends:
            self._flush()

    def _flush(self) -> None:
        word = np.frombuffer(self._words, dtype=np.int32).astype(np.int64)
        passage = np.repeat(np.arange(len(self._ends)), np.diff(self._ends, prepend=0))
        word, passage = word[word >= 0], passage[word >= 0]
        lengths = np.bincount(passage, minlength=len(self._ends))
        keys, counts = np.unique(word << 32 | (passage + len(self.lengths)), return_counts=True)
        found = np.empty(len(keys), dtype=_POSTING)
        found["word"], found["passage"], found["count"] = keys >> 32, keys & 0xFFFFFFFF, counts
        path = self._folder / f"portion-{len(self.portions)}.npy"
        np.save(path, found)
        self.portions.append(path)
        self.lengths.extend(lengths.tolist())
        self._words, self._ends = array("i"), []


def _merge(spill: _Spill, folder: Path) -> int:
    """Write the three arrays and two description files that bm25s reads; returns the number of postings."""
    vocabulary = spill.vocabulary
    lengths = np.frombuffer(spill.lengths, dtype=np.int32).astype(np.float64)
    portions = [np.load(path, mmap_mode="r") for path in spill.portions]
    frequency = np.zeros(len(vocabulary), dtype=np.int64)
    for portion in portions:
        frequency += np.bincount(portion["word"], minlength=len(vocabulary))
    starts = np.concatenate([[0], np.cumsum(frequency)])
    total = int(starts[-1])
    weights = np.log1p((len(lengths) - frequency + 0.5) / (frequency + 0.5))
    mean = float(lengths.mean()) or 1.0  # if no passage has a word, nothing is scored
    norms = K1 * (1 - B + B * lengths / mean)

    np.save(folder / "indptr.csc.index.npy", starts)
    data = np.lib.format.open_memmap(folder / "data.csc.index.npy", "w+", np.float32, (total,))
    indices = np.lib.format.open_memmap(folder / "indices.csc.index.npy", "w+", np.int32, (total,))
    first = 0
    while first < len(vocabulary):
        last = max(int(np.searchsorted(starts, starts[first] + MERGED, "right")) - 1, first + 1)
        part = np.concatenate([_range(portion, first, last) for portion in portions])
        # Portions are in the order of passages, so a stable sort preserves that order within a word.
        part = part[np.argsort(part["word"], kind="stable")]
        count = part["count"].astype(np.float64)
        score = weights[part["word"]] * count / (norms[part["passage"]] + count)
        data[starts[first] : starts[last]] = score
        indices[starts[first] : starts[last]] = part["passage"]
        first = last
    data.flush()
    indices.flush()
    for path in spill.portions:
        path.unlink()
    (folder / "vocab.index.json").write_text(json.dumps(vocabulary, ensure_ascii=False), encoding="utf-8")
    settings = {
        "k1": K1,
        "b": B,
        "delta": 0.5,
        "method": "lucene",
        "idf_method": "lucene",
        "dtype": "float32",
        "int_dtype": "int32",
        "num_docs": len(lengths),
        "version": bm25s.__version__,
        "backend": "numpy",
    }
    (folder / "params.index.json").write_text(json.dumps(settings, indent=2), encoding="utf-8")
    return total


def _range(portion: Postings, first: int, last: int) -> Postings:
    """The postings of the words in [first, last)."""
    low, high = np.searchsorted(portion["word"], [first, last])
    return np.asarray(portion[low:high])
