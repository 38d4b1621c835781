"""Dense search against BM25 in one run: recall of graphs, queries per second, build time and memory.

python -m pytest tests/bench/bench_dense.py -s -o python_files='bench_*.py'
"""

import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import BertConfig, BertModel

from tests.tools.corpus import NONE, Corpus, make_corpus, queries, write_corpus
from vtune.runs.data.indexing import index_passages, passages_of
from vtune.tools.bm25 import PassageIndex
from vtune.tools.dense import DenseIndex
from vtune.tools.dense_build import Callbacks, Method, build_dense_index

PASSAGES = 40_000
WIDTH = 768
"""Embedding width of e5-base."""
SENSES = 32
"""Number of directions in which passages differ; ours, of the order measured for trained encoders."""
QUERIES = 50
VOCABULARY = 20_000
TOP_K = 3


class WordMeans:
    """A fake encoder: the mean of random word vectors, rare words weighted higher; neighbours share words.

    The vectors span few of the available directions, as those of trained encoders do.
    """

    def __init__(self) -> None:
        self.width = WIDTH
        self.facts = {"model": "word means", "fingerprint": "word means"}
        rng = np.random.default_rng(0)
        senses = rng.standard_normal((VOCABULARY, SENSES)) * np.log(np.arange(2, VOCABULARY + 2))[:, None]
        self._table = (senses @ rng.standard_normal((SENSES, WIDTH))).astype(np.float32)

    def query(self, text: str) -> NDArray[np.float32]:
        mean = self._table[[int(word[1:]) for word in text.split()]].mean(axis=0)
        unit: NDArray[np.float32] = mean / np.linalg.norm(mean)
        return unit

    def queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.stack([self.query(text) for text in texts])

    passages = queries


def test_dense_search_against_bm25(tmp_path: Path) -> None:
    corpus = make_corpus(PASSAGES, seed=0, vocabulary=VOCABULARY)
    write_corpus(corpus, tmp_path / "corpus.jsonl")
    index_passages(tmp_path / "corpus.jsonl", tmp_path / "bm25")
    encoder = WordMeans()
    for method in ("exact", "hnsw"):
        _build(tmp_path, encoder, method)
    bm25 = PassageIndex(tmp_path / "bm25")
    exact, graphs = (DenseIndex(tmp_path / name, encoder) for name in ("exact", "hnsw"))
    asked = queries(corpus, QUERIES, seed=1)
    for top_k in (1, 3, 10):
        found = [[{n for n, _ in index.rank(q, top_k)} for q in asked] for index in (graphs, exact)]
        recall = np.mean([len(one & other) / top_k for one, other in zip(*found, strict=True)])
        print(f"recall@{top_k} of graphs against exact search: {recall:.4f}")
    vectors = [encoder.query(query) for query in asked]
    rates = _rates(
        {
            "BM25": [lambda q=q: bm25.rank(q, TOP_K) for q in asked],
            "exact": [lambda v=v: exact.nearest(v, TOP_K) for v in vectors],
            "graphs": [lambda v=v: graphs.nearest(v, TOP_K) for v in vectors],
            "query by an encoder of e5-base's size": _embeddings(),
        }
    )
    for name, rate in rates.items():
        print(f"{name}: {rate:.1f} a second of CPU, {rate / rates['BM25']:.4f} of BM25")
    assert rates["graphs"] > rates["exact"]
    assert _own_titles(corpus, exact) == 1.0


def _build(folder: Path, encoder: WordMeans, method: Method) -> None:
    (folder / method).mkdir()
    began, cpu = time.monotonic(), time.process_time()
    told = Callbacks(lambda: None, lambda text: None)
    build_dense_index(passages_of(folder / "corpus.jsonl"), folder / method, encoder, told, method=method)
    size = sum(path.stat().st_size for path in (folder / method).iterdir())
    print(
        f"\n{method}: {PASSAGES} passages of {WIDTH} numbers in {time.monotonic() - began:.0f} s "
        f"({time.process_time() - cpu:.0f} s of CPU), {size / 2**20:.0f} MiB with what only a build needs"
    )


def _embeddings() -> list[Callable[[], object]]:
    """Forward passes for one query of 16 tokens; the cost does not depend on the weights."""
    torch.set_num_threads(1)  # threads that wait for each other would measure the load of the machine
    model = BertModel(BertConfig()).eval()
    ids = torch.arange(16)[None]

    def embed() -> object:
        with torch.inference_mode():
            return model(input_ids=ids).last_hidden_state

    return [embed] * QUERIES


def _rates(work: dict[str, list[Callable[[], object]]]) -> dict[str, float]:
    """Calls per CPU second; the kinds alternate, so that other load on the machine affects all of them."""
    seconds = dict.fromkeys(work, 0.0)
    for calls in zip(*work.values(), strict=True):
        for name, call in zip(work, calls, strict=True):
            began = time.process_time()
            call()
            seconds[name] += time.process_time() - began
    return {name: QUERIES / total for name, total in seconds.items()}


def _own_titles(corpus: Corpus, index: DenseIndex) -> float:
    """Share of passages that rank first for a query of all their own words."""
    rows = itertools.islice(corpus.words, 0, PASSAGES, PASSAGES // 20)
    texts = [" ".join(f"w{word}" for word in row if word != NONE) for row in rows]
    first = [index.rank(text, 1)[0][0] for text in texts]
    return float(np.mean([n == place * (PASSAGES // 20) for place, n in enumerate(first)]))
