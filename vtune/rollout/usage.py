"""Usage of a model behind an endpoint: one line per turn, summed up at the end."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Self

from vtune.errors import DataError
from vtune.files.json_text import parse_json
from vtune.files.reading import whole_lines
from vtune.files.writing import appending
from vtune.judge.budget import Prices, Tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """The usage of one turn."""

    input: int | None
    """Tokens, including cached ones; None if the endpoint does not count."""
    cached: int
    output: int | None
    model: str | None
    """The endpoint's name for the model that answered, which may be more specific than the one requested;
    None if its answer could not be read."""
    fingerprint: str | None
    """`system_fingerprint`: when it changes, replies may change too."""
    without: list[str]
    """Settings that were omitted because the endpoint rejects them."""


class Ledger:
    """Records turns as they are generated, in a JSONL file that a resumed run appends to."""

    def __init__(self, path: Path, file: IO[str]) -> None:
        self._path = path
        self._file = file

    @classmethod
    @contextmanager
    def at(cls, path: Path) -> Iterator[Self]:
        """A ledger at a path; an incomplete last line, left by a kill, is removed."""
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            whole_lines(path, repair=True)
        file = path.open("a", encoding="utf-8")
        try:
            yield cls(path, file)
        finally:
            with appending(path):
                file.close()

    def add(self, used: Used) -> None:
        """Record a turn."""
        with appending(self._path):
            self._file.write(json.dumps(asdict(used)) + "\n")
            self._file.flush()


def spent(path: Path, prices: Prices | None) -> dict[str, Any]:
    """The totals of a ledger; wasted turns are included, because they were paid for.

    Answers that could not be read are included too, as turns of unknown usage.

    Returns:
        `turns`, `input_tokens`, `cached_input_tokens`, `output_tokens` (null if any turn has no count),
        `uncounted` turns, `answered_by`, `system_fingerprints`, `without` (omitted settings), and `cost`:
        null without prices, or if any turn has no count.

    Raises:
        DataError: If a line is not a ledger entry.
    """
    turns = uncounted = taken = cached = given = 0
    models: set[str] = set()
    fingerprints: set[str] = set()
    without: set[str] = set()
    lines = whole_lines(path, repair=False) if path.exists() else []
    for number, line in enumerate(lines, start=1):
        try:
            used = Used(**parse_json(line))
        except (ValueError, TypeError):
            raise DataError("not a turn's usage", where=f"{path}:{number}", fix="delete the file") from None
        turns += 1
        if used.model is not None:
            models.add(used.model)
        without.update(used.without)
        if used.fingerprint is not None:
            fingerprints.add(used.fingerprint)
        if used.input is None or used.output is None:
            uncounted += 1
            continue
        taken, cached, given = taken + used.input, cached + used.cached, given + used.output
    known = not uncounted
    return {
        "turns": turns,
        "input_tokens": taken if known else None,
        "cached_input_tokens": cached if known else None,
        "output_tokens": given if known else None,
        "uncounted": uncounted,
        "answered_by": sorted(models),
        "system_fingerprints": sorted(fingerprints),
        "without": sorted(without),
        "cost": _cost(Tokens(taken, cached, given), prices) if known and prices is not None else None,
    }


def _cost(tokens: Tokens, prices: Prices) -> dict[str, Any]:
    return {"amount": tokens.cost(prices), "currency": prices.currency}
