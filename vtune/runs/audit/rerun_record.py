"""What has been regenerated, one JSON object per line, so that it is not generated again."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from vtune.errors import DataError
from vtune.files.json_text import parse_json
from vtune.files.reading import open_input, read_lines
from vtune.files.writing import appending
from vtune.metrics.counterfactual import Rerun

NAME = "counterfactual.jsonl"
"""File name, beside the trajectories."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A regenerated turn and its result."""

    key: str
    """Hash of the model, its settings, the conversation and the exchange."""
    exchange: str
    sample_id: str
    rollout: int
    text: str
    right: bool
    follows: bool | None
    again: bool
    same: bool
    tokens: int | None

    def rerun(self) -> Rerun:
        """The result in the form used for numbers."""
        return Rerun(
            right=self.right,
            follows=self.follows,
            again=self.again,
            same=self.same,
            tokens=self.tokens,
        )


class RerunRecord:
    """A run's record file; lines are appended as turns end, so a kill only loses turns in progress.

    Args:
        path: The file; it need not exist.

    Raises:
        DataError: If one of its lines cannot be read. A last line without a line break is ignored.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines = _read(path)

    def get(self, key: str) -> Line | None:
        """The recorded line for a key."""
        return self._lines.get(key)

    def add(self, line: Line) -> None:
        """Append a line to the record.

        Raises:
            RecipeError: If the file cannot be written.
            RunFailed: If there is no space left.
        """
        self._lines[line.key] = line
        text = json.dumps(asdict(line), ensure_ascii=False, allow_nan=False) + "\n"
        # Not `os.write`, which on a nearly full disk writes the first part only and reports no error.
        with appending(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(text)

    def trim(self) -> None:
        """Remove an incomplete last line, left by a kill, before others are appended.

        Raises:
            RecipeError: If the file cannot be written.
            RunFailed: If there is no space left.
        """
        if not self.path.exists():
            return
        with appending(self.path), self.path.open("r+b") as stream:
            whole = stream.read().rfind(b"\n") + 1
            stream.truncate(whole)


def _read(path: Path) -> dict[str, Line]:
    if not path.exists():
        return {}
    found = {}
    with open_input(path) as stream:
        for number, line in enumerate(read_lines(stream), start=1):
            if not line.endswith(b"\n"):
                break
            try:
                values = parse_json(line)
                if not isinstance(values, Mapping):
                    raise ValueError("it is not an object")
                one = Line(**values)
            except (ValueError, TypeError) as error:
                raise DataError(
                    f"not a turn that was generated again: {error}",
                    where=f"{path}:{number}",
                    fix="remove the line, or the file: what is missing is generated again",
                ) from None
            found[one.key] = one
    return found
