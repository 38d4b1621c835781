"""Results that were paid for once, by content hash, in an append-only file."""

import json
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from vtune.errors import DataError
from vtune.files.writing import appending


class Results:
    """A JSONL file of results, each stored under the SHA-256 of everything that it depends on.

    A line is in the file as soon as `put` returns, so a killed process loses nothing that was finished.
    Memory only holds a hash and an offset for each result.

    Args:
        path: The file, created if missing; only one process may write to it.

    Raises:
        DataError: If it holds anything else. An incomplete last line, left by a killed process, is removed.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._places: dict[bytes, int] = {}
        self._file: IO[bytes] = path.open("a+b")
        self._end = self._read_places()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with appending(self._path):
            self._file.close()

    def __contains__(self, key: str) -> bool:
        return bytes.fromhex(key) in self._places

    def __len__(self) -> int:
        return len(self._places)

    def get(self, key: str) -> Any:
        """The result; None if there is none."""
        place = self._places.get(bytes.fromhex(key))
        if place is None:
            return None
        self._file.seek(place)
        return json.loads(self._file.readline())["result"]

    def put(self, key: str, result: Any) -> None:
        """Store a result that JSON can represent; a later one under the same key replaces it."""
        line = (
            json.dumps({"key": key, "result": result}, ensure_ascii=False, allow_nan=False).encode() + b"\n"
        )
        with appending(self._path):
            self._file.write(line)
            self._file.flush()
        self._places[bytes.fromhex(key)] = self._end
        self._end += len(line)

    def _read_places(self) -> int:
        """Read the offset of each result; return the end of the file."""
        self._file.seek(0)
        end = 0
        for number, line in enumerate(self._file, start=1):
            if not line.endswith(b"\n"):
                self._file.truncate(end)
                break
            try:
                self._places[bytes.fromhex(json.loads(line)["key"])] = end
            except (ValueError, KeyError, TypeError):
                raise DataError(
                    "not a kept result", where=f"{self._path}:{number}", fix="delete the line, or the file"
                ) from None
            end += len(line)
        return end
