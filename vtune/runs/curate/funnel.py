"""What became of each source's rows: counts for the funnel, reasons and examples."""

import hashlib
import heapq
import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from vtune.runs.curate.rows import Dropped, Rows

EXAMPLES = 4
"""Rows that the page shows of each filter, and of each source as kept (ours)."""


@dataclass(frozen=True, slots=True)
class Example:
    """A row worth showing."""

    source: str
    position: int
    reason: str
    """Empty where it was kept."""


class Ledger:
    """Takes rows out, and books each with its reason; a context manager.

    `drops.jsonl` gets a line per row. It has its name only when the block ends without an error.

    Args:
        rows: The rows.
        columns: Names of the filters, the one for rows that cannot be used first.
        path: Where the reasons go.
        seed: Chooses the examples.
    """

    def __init__(self, rows: Rows, columns: Sequence[str], path: Path, seed: int) -> None:
        self._rows = rows
        self._path = path
        self._partial = path.with_name(f".{path.name}.part")
        self._seed = seed
        self._file: IO[str] | None = None
        self._examples: dict[int, list[tuple[bytes, int, str, str]]] = defaultdict(list)
        self.columns = columns
        self.concerned: Counter[int] = Counter()
        """Column -> rows that the filter has looked at."""
        self.counts: dict[str, Counter[int]] = {source: Counter() for source in rows.parts}
        """Source -> column -> rows dropped there."""
        self.repeated: Counter[str] = Counter()
        """Source -> rows whose id has come before."""

    def __enter__(self) -> Self:
        self._file = self._partial.open("w", encoding="utf-8")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
        if error is None:
            self._partial.replace(self._path)
        else:
            self._partial.unlink(missing_ok=True)

    def drop(self, source: str, gone: Dropped) -> None:
        """Take a row out."""
        if self._file is None:
            raise RuntimeError("the ledger is used outside its `with`")
        self._rows.left[source][gone.position] = 0
        self.counts[source][gone.column] += 1
        file, row = self._rows.stands(source, gone.position)
        line = {
            "source": source,
            "id": gone.identity,
            "file": file,
            "row": row,
            "filter": self.columns[gone.column],
            "reason": gone.reason,
        }
        self._file.write(json.dumps(line, ensure_ascii=False) + "\n")
        self._consider(gone.column, source, gone.position, gone.reason)

    def examples(self, column: int) -> list[Example]:
        """A few of the rows that a filter dropped, chosen by chance."""
        chosen = sorted(self._examples[column], reverse=True)
        return [Example(source, -position, reason) for _, position, source, reason in chosen]

    def kept_examples(self, source: str) -> list[Example]:
        """A few of the rows of a source that are left."""
        first = heapq.nsmallest(
            EXAMPLES, self._rows.positions(source), key=lambda p: self._chance(0, source, p)
        )
        return [Example(source, position, "") for position in first]

    def _consider(self, column: int, source: str, position: int, reason: str) -> None:
        # The rows with the smallest hashes, in a heap whose first entry has the largest.
        inverted = bytes(255 - byte for byte in self._chance(column, source, position))
        entry = (inverted, -position, source, reason)
        heap = self._examples[column]
        if len(heap) < EXAMPLES:
            heapq.heappush(heap, entry)
        else:
            heapq.heappushpop(heap, entry)

    def _chance(self, column: int, source: str, position: int) -> bytes:
        return hashlib.blake2b(f"{self._seed} {column} {source} {position}".encode(), digest_size=8).digest()


def funnel(
    ledger: Ledger, sizes: dict[str, tuple[int, int]], final: dict[str, int]
) -> dict[str, dict[str, Any]]:
    """Source -> rows `before`, `sampled` of them, left after each filter, and `after` the mix; and `all`.

    Args:
        ledger: What was dropped where.
        sizes: Source -> (rows of its files, rows that were looked at).
        final: Source -> rows in the result, repetitions included.
    """
    table: dict[str, dict[str, Any]] = {}
    for source, (before, sampled) in sizes.items():
        row = {"before": before, "sampled": sampled}
        left = sampled
        for column, name in enumerate(ledger.columns):
            left -= ledger.counts[source][column]
            row[name] = left
        row["after"] = final[source]
        table[source] = row
    table["all"] = {name: sum(row[name] for row in table.values()) for name in next(iter(table.values()))}
    return table
