"""Builds a dense index of passages as a stream that can be resumed: nothing is embedded twice.

Passages and vectors are appended to files, and a journal records how much of them is valid; anything beyond
that is cut off when the same build is restarted. Large indexes then get graphs, one per part.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from usearch.index import Index

from vtune.errors import DataError, RecipeError
from vtune.files.json_text import parse_json
from vtune.files.reading import read_text
from vtune.tools.passage import Passage
from vtune.tools.store import write_manifest

Method = Literal["exact", "hnsw"]

WINDOW = 4096
"""Passages embedded between two entries of the journal; ours: at most this many are lost on interruption."""

EXACT_MOST = 1_000_000
"""Up to this many passages are searched exhaustively by default; ours: see the page of `vtune.tools`."""

PART = 1 << 20
"""Passages per graph, which must fit into memory while it is built; ours: 1.8 GB with 768 numbers each."""

CONNECTIVITY = 32
"""Neighbours per node: M in Malkov and Yashunin 2018; ours, for vectors of several hundred numbers."""
EXPANSION_BUILD = 128
"""Candidates considered for them: efConstruction, usearch's default."""
EXPANSION_SEARCH = 256
"""Candidates per search: efSearch; ours, see the page of `vtune.tools`."""

JOURNAL = "journal.json"
ENCODER = "encoder.json"
"""The encoder with which an unfinished index was started."""
ENDS = "ends.i64"
VECTORS = "vectors.f16"
"""Passages x width numbers in half precision, row by row."""


class TextEncoder(Protocol):
    """Turns texts into vectors whose inner product measures how well they match."""

    width: int
    facts: Mapping[str, Any]
    """Must include a `fingerprint`: vectors are comparable only if it is the same."""

    def queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Shape (texts, width)."""
        ...

    def passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Shape (texts, width)."""
        ...


@dataclass(frozen=True, slots=True)
class Callbacks:
    """Receivers of a build's progress."""

    tick: Callable[[], None]
    """Called after each passage."""
    say: Callable[[str], None]
    """Called with a description of the current step."""


@dataclass(frozen=True, slots=True)
class _Journal:
    """How much of the files is valid."""

    passages: int
    bytes: int
    """Size of the file of passages."""
    digest: str
    """SHA-256 of these bytes, which reveals if the corpus has changed since the build was started."""


def build_dense_index(
    passages: Iterable[Passage],
    folder: Path,
    encoder: TextEncoder,
    callbacks: Callbacks,
    *,
    method: Method | None,
) -> dict[str, Any]:
    """Write a dense index into a folder that is empty, or in which the same build was interrupted.

    Memory holds one window of passages and the encoder, then one graph; vectors are kept in half precision.

    Args:
        passages: In order; ties in score rank in this order.
        folder: Where to write.
        encoder: Embeds `title`, a line break and `text`.
        callbacks: Called on progress.
        method: `exact` compares a query with every passage, `hnsw` searches graphs (Malkov and Yashunin
            2018); None uses graphs for more than `EXACT_MOST` passages.

    Returns:
        The manifest: `kind`, `passages`, `width`, `method`, `part` and `encoder`.

    Raises:
        DataError: If there is no passage, or the corpus differs from the one with which the build was
            started.
        RecipeError: If it was started with another encoder.
    """
    _check_encoder(folder, encoder)
    count = _embed(iter(passages), folder, encoder, callbacks)
    if not count:
        raise DataError("the corpus has no passage", fix="give a file with rows of `text`")
    chosen = method or ("exact" if count <= EXACT_MOST else "hnsw")
    if chosen == "hnsw":
        _build_graphs(folder, count, encoder.width, callbacks)
    ends = np.fromfile(folder / ENDS, dtype=np.int64)
    np.save(folder / "passages.ends.npy", ends)
    facts = {
        "kind": "dense",
        "passages": count,
        "width": encoder.width,
        "method": chosen,
        "part": PART,
        "encoder": dict(encoder.facts),
    }
    write_manifest(folder, facts)
    return facts


def is_begun(folder: Path) -> bool:
    """Whether an unfinished build has embedded anything from which it could continue."""
    return (folder / JOURNAL).is_file()


def tidy_dense_index(folder: Path, method: Method) -> None:
    """Remove the files that only an unfinished build needs from an index that is complete."""
    for name in (JOURNAL, ENCODER, ENDS, *([VECTORS] if method == "hnsw" else [])):
        (folder / name).unlink(missing_ok=True)


def graph_of(folder: Path, number: int) -> Path:
    """The file of a graph."""
    return folder / f"graph-{number:04d}.usearch"


def open_graph(path: Path) -> Index:
    """A graph, mapped into memory.

    Raises:
        ValueError: If the file is not a journal.
    """
    try:
        graph = Index.restore(path, view=True, expansion_search=EXPANSION_SEARCH, enable_key_lookups=False)
    except RuntimeError as error:
        raise ValueError(f"{path.name}: {error}") from None
    if graph is None:
        raise ValueError(f"{path.name} is not a graph")
    return graph


def starts_of(count: int, part: int) -> range:
    """The first passage of each part."""
    return range(0, count, part)


def _check_encoder(folder: Path, encoder: TextEncoder) -> None:
    """Check that the build was started with this encoder; if it is new, record the encoder."""
    path = folder / ENCODER
    mine = {**encoder.facts, "model": None}  # a model may have been moved
    if not is_begun(folder):
        path.write_text(json.dumps(mine), encoding="utf-8")
        return
    if parse_json(read_text(path)) != mine:
        raise RecipeError(
            f"{folder} holds an unfinished index by another encoder, or with other settings",
            fix=f"finish it with that one, or start anew: rm -r {folder}",
        )


def _embed(passages: Iterator[Passage], folder: Path, encoder: TextEncoder, callbacks: Callbacks) -> int:
    """Embed all passages that are not embedded yet; returns the number of passages."""
    journal, digest = _resumed(passages, folder, encoder.width, callbacks)
    with (
        (folder / "passages.bin").open("ab") as records,
        (folder / ENDS).open("ab") as ends,
        (folder / VECTORS).open("ab") as vectors,
    ):
        while window := list(islice(passages, WINDOW)):
            written = [_record(passage) for passage in window]
            found = encoder.passages([_text(passage) for passage in window])
            if not np.isfinite(halves := found.astype(np.float16)).all():
                raise DataError(
                    "the encoder gives numbers that half precision cannot hold",
                    where=str(encoder.facts["model"]),
                    fix="choose an encoder whose family normalises, or check that its weights are complete",
                )
            records.write(b"".join(written))
            ends.write((journal.bytes + np.cumsum([len(one) for one in written])).astype(np.int64).tobytes())
            vectors.write(halves.tobytes())
            for file in (records, ends, vectors):
                file.flush()
                os.fsync(file.fileno())
            for one in written:
                digest.update(one)
                callbacks.tick()
            size = journal.bytes + sum(map(len, written))
            journal = _Journal(journal.passages + len(window), size, digest.hexdigest())
            _write_journal(folder, journal)
    return journal.passages


def _text(passage: Passage) -> str:
    return f"{passage.title}\n{passage.text}" if passage.title else passage.text


def _record(passage: Passage) -> bytes:
    record = {"id": passage.id, "title": passage.title, "text": passage.text}
    return json.dumps(record, ensure_ascii=False).encode()


def _resumed(
    passages: Iterator[Passage], folder: Path, width: int, callbacks: Callbacks
) -> tuple[_Journal, Any]:
    """Resume a build: skip the passages already embedded, and cut off whatever is only half written.

    Returns:
        The journal, and the running digest of what it covers, to be continued.
    """
    path = folder / JOURNAL
    journal = _Journal(**parse_json(read_text(path))) if path.is_file() else _Journal(0, 0, "")
    digest = hashlib.sha256()
    for passage in islice(passages, journal.passages):
        digest.update(_record(passage))
        callbacks.tick()
    if journal.passages:
        if digest.hexdigest() != journal.digest:
            raise DataError(
                f"the first {journal.passages} passages are not those that this index was begun with",
                where=str(folder),
                fix=f"give the same corpus, or start anew: rm -r {folder}",
            )
        callbacks.say(f"{journal.passages} passages were embedded before")
    sizes = {"passages.bin": journal.bytes, ENDS: 8 * journal.passages, VECTORS: 2 * width * journal.passages}
    for name, size in sizes.items():
        with (folder / name).open("ab") as file:
            if (there := file.tell()) < size:  # an incomplete copy: truncating would pad it with zeros
                raise DataError(
                    f"it holds {there} of the {size} bytes that were written",
                    where=str(folder / name),
                    fix=f"restore the file, or start anew: rm -r {folder}",
                )
            file.truncate(size)
    return journal, digest


def _write_journal(folder: Path, journal: _Journal) -> None:
    partial = folder / f"{JOURNAL}.partial"
    facts = {"passages": journal.passages, "bytes": journal.bytes, "digest": journal.digest}
    partial.write_text(json.dumps(facts), encoding="utf-8")
    partial.replace(folder / JOURNAL)


def _build_graphs(folder: Path, count: int, width: int, callbacks: Callbacks) -> None:
    """Build a graph for each part; complete ones are kept."""
    vectors = np.memmap(folder / VECTORS, dtype=np.float16, mode="r", shape=(count, width))
    starts = starts_of(count, PART)
    for number, start in enumerate(starts):
        path, end = graph_of(folder, number), min(start + PART, count)
        if path.is_file() and len(open_graph(path)) == end - start:
            continue
        callbacks.say(f"graph {number + 1} of {len(starts)}")
        graph = Index(
            ndim=width,
            metric="ip",
            dtype="f16",
            connectivity=CONNECTIVITY,
            expansion_add=EXPANSION_BUILD,
            enable_key_lookups=False,
        )
        for first in range(start, end, WINDOW):
            last = min(first + WINDOW, end)
            graph.add(np.arange(first, last), np.asarray(vectors[first:last]))
        partial = path.with_suffix(".partial")
        graph.save(partial)
        partial.replace(path)
