"""Generated passages with known words, and an exact brute-force BM25."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

K1, B = 1.5, 0.75

NONE = -1
"""Padding of passages shorter than the longest."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """Passages as word numbers, shape (passages, longest); word n is written `w<n>`."""

    words: NDArray[np.int32]
    weights: NDArray[np.float64]
    """Sampling probability of each word."""


def make_corpus(passages: int, *, seed: int, vocabulary: int = 200_000, longest: int = 60) -> Corpus:
    """Words by Zipf's law, 20 to 60 per passage, as in an encyclopaedia."""
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(10, vocabulary + 10)
    weights /= weights.sum()
    drawn = np.searchsorted(np.cumsum(weights), rng.random((passages, longest), dtype=np.float32))
    words = np.minimum(drawn, vocabulary - 1).astype(np.int32)
    lengths = rng.integers(20, longest + 1, passages)
    words[np.arange(longest)[None, :] >= lengths[:, None]] = NONE
    return Corpus(words, weights)


def write_corpus(corpus: Corpus, path: Path) -> None:
    with path.open("w") as file:
        for number, row in enumerate(corpus.words.tolist()):
            text = " ".join([f"w{word}" for word in row if word != NONE])
            head, _, rest = text.partition(" ")
            file.write(json.dumps({"id": f"p{number}", "title": head, "text": rest}) + "\n")


def queries(corpus: Corpus, count: int, *, seed: int) -> list[str]:
    """Queries of two to five different words of one passage, as asked by somebody who looks for it."""
    rng = np.random.default_rng(seed)
    found = []
    for number in rng.integers(0, len(corpus.words), count):
        known = np.unique(corpus.words[number][corpus.words[number] != NONE])
        chosen = rng.choice(known, size=min(int(rng.integers(2, 6)), len(known)), replace=False)
        found.append(" ".join(f"w{word}" for word in chosen))
    return found


def exact_scores(corpus: Corpus, query: str) -> NDArray[np.float64]:
    """BM25 scores of all passages in float64, by the definition that bm25s calls Lucene's.

    Returns:
        Shape (passages,).
    """
    lengths = (corpus.words != NONE).sum(axis=1)
    norms = K1 * (1 - B + B * lengths / lengths.mean())
    scores: NDArray[Any] = np.zeros(len(corpus.words))
    for word in query.split():
        counts = (corpus.words == int(word[1:])).sum(axis=1)
        frequency = int((counts > 0).sum())
        weight = np.log(1 + (len(counts) - frequency + 0.5) / (frequency + 0.5))
        scores += weight * counts / (counts + norms)
    return scores
