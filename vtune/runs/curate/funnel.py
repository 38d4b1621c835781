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
from vtune.tools.observation import encodable

EXAMPLES = 4
"""Number of rows that the page shows per filter, and per source as kept (ours)."""


@dataclass(frozen=True, slots=True)
class Example:
    """A row worth showing."""

    source: str
    position: int
    reason: str
    """Empty if it was kept."""


class Ledger:
    """Drops rows and records each with its reason; a context manager.

    `drops.jsonl` gets one line per row. It gets its final name only if the block ends without an error.

    Args:
        rows: The rows.
        columns: Names of the filters; first comes the one for rows that cannot be used.
        path: Where to write the reasons.
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
        """Column -> number of rows that the filter looked at."""
        self.counts: dict[str, Counter[int]] = {source: Counter() for source in rows.parts}
        """Source -> column -> number of rows dropped there."""
        self.repeated: Counter[str] = Counter()
        """Source -> number of rows with a repeated id."""

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
        """Drop a row."""
        if self._file is None:
            raise RuntimeError("the ledger is used outside its `with`")
        self._rows.left[source][gone.position] = 0
        self.counts[source][gone.column] += 1
        file, row = self._rows.stands(source, gone.position)
        reason = encodable(gone.reason)  # a user's own filter may quote half a surrogate pair
        line = {
            "source": source,
            "id": gone.identity,
            "file": file,
            "row": row,
            "filter": self.columns[gone.column],
            "reason": reason,
        }
        self._file.write(json.dumps(line, ensure_ascii=False) + "\n")
        self._consider(gone.column, source, gone.position, reason)

    def examples(self, column: int) -> list[Example]:
        """A few of the rows that a filter dropped, chosen at random."""
        chosen = sorted(self._examples[column], reverse=True)
        return [Example(source, -position, reason) for _, position, source, reason in chosen]

    def kept_examples(self, source: str) -> list[Example]:
        """A few of a source's kept rows."""
        first = heapq.nsmallest(
            EXAMPLES, self._rows.positions(source), key=lambda p: self._chance(0, source, p)
        )
        return [Example(source, position, "") for position in first]

    def _consider(self, column: int, source: str, position: int, reason: str) -> None:
        # Keep the rows with the smallest hashes, in a heap whose first entry has the largest of them.
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
    """Source -> number of rows `before`, `sampled`, left after each filter, and `after` the mix; plus `all`.

    Args:
        ledger: Which rows were dropped where.
        sizes: Source -> (rows of its files, rows that were looked at).
        final: Source -> rows in the result, including repetitions.
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
