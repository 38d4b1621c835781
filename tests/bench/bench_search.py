"""A million passages: build time and memory of an index, queries per second, agreement with exact BM25.

python -m pytest tests/bench/bench_search.py -s -o python_files='bench_*.py'
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.tools.corpus import Corpus, exact_scores, make_corpus, queries, write_corpus
from vtune.tools.bm25 import PassageIndex

PASSAGES = int(1e6)
QUERIES = 200

BUILD = """
import json, sys, time
from pathlib import Path
import vtune.tools.bm25_build, vtune.runs.data.indexing
def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
base = peak()
began, cpu = time.monotonic(), time.process_time()
facts = vtune.runs.data.indexing.index_passages(Path(sys.argv[1]), Path(sys.argv[2]))
print(json.dumps(facts | {"seconds": time.monotonic() - began, "cpu": time.process_time() - cpu,
    "mib": (peak() - base) / 1024}))
"""


def test_a_million_passages(tmp_path: Path) -> None:
    corpus = make_corpus(PASSAGES, seed=0)
    write_corpus(corpus, tmp_path / "corpus.jsonl")
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", BUILD, str(tmp_path / "corpus.jsonl"), str(tmp_path / "index")]
    built = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    facts: dict[str, Any] = json.loads(built.stdout)
    print(
        f"\n{facts['passages']} passages, {facts['words']} words, {facts['postings']} postings: built in "
        f"{facts['seconds']:.0f} s ({facts['cpu']:.0f} s of CPU), {facts['mib']:.0f} MiB above the imports, "
        f"{facts['bytes'] / 2**20:.0f} MiB on disk"
    )
    began = time.process_time()
    before = _own_memory()
    index = PassageIndex(tmp_path / "index")
    print(
        f"opened in {time.process_time() - began:.1f} s of CPU, {_own_memory() - before:.0f} MiB of its own"
    )
    asked = queries(corpus, QUERIES, seed=1)
    took = []
    for query in asked:
        began, wall = time.process_time(), time.monotonic()
        index.find(query, 3)
        took.append((time.process_time() - began, time.monotonic() - wall))
    cpu, wall = np.array(took[QUERIES // 10 :]).T  # without the first, which read the files from disk
    print(
        f"{1 / cpu.mean():.0f} queries a second of CPU, {1 / wall.mean():.0f} of the clock; "
        f"median {np.median(cpu) * 1e3:.1f} ms, 95 % within {np.quantile(cpu, 0.95) * 1e3:.1f} ms of CPU"
    )
    share = agreement(index, corpus, asked)
    print(f"top-1 agreement with an exact BM25: {share:.4f} of {QUERIES}")


def agreement(index: PassageIndex, corpus: Corpus, asked: list[str]) -> float:
    """Share of queries whose top passage is also ranked first by exact BM25."""
    return float(
        np.mean([_agrees(index.rank(query, 1)[0][0], exact_scores(corpus, query)) for query in asked])
    )


def _agrees(first: int, scores: NDArray[np.float64]) -> bool:
    # Passages with equal scores may differ in the last bit of a float64.
    return bool(scores[first] >= scores.max() * (1 - 1e-12))


def _own_memory() -> float:
    """MiB private to this process, without mapped files."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no RssAnon")
