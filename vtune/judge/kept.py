"""The format of a file of kept replies."""

from dataclasses import dataclass, field
from pathlib import Path

from vtune.errors import DataError
from vtune.files.json_text import parse_json
from vtune.files.reading import whole_lines
from vtune.judge.budget import Tokens


@dataclass(slots=True)
class Kept:
    """Cached replies by key of the question, and their usage."""

    replies: dict[str, str] = field(default_factory=dict)
    spent: Tokens = field(default_factory=Tokens)
    """By everything that was sent, with or without a reply."""
    by_batch: int = 0
    """Number of replies that came from batches."""
    cut: set[str] = field(default_factory=set)
    """Keys of questions whose reply was cut at its token limit."""


def read_kept(path: Path) -> Kept:
    """The content of a file; empty if there is no file. A last line that was cut short by a kill is removed.

    A row without a reply cancels the earlier one for the same key.

    Raises:
        DataError: If the file cannot be read, or a line is not a cached reply.
    """
    kept = Kept()
    if not path.exists():
        return kept
    try:
        lines = whole_lines(path, repair=True)
    except OSError as error:
        raise DataError(
            f"cannot read cached replies at {path}: {error.strerror}", fix="check the path"
        ) from None
    for number, line in enumerate(lines, start=1):
        try:
            row = parse_json(line)
            if row["reply"] is None:  # the reply was empty or unreadable
                kept.replies.pop(row["key"], None)
                kept.cut.discard(row["key"])
            else:
                kept.replies[row["key"]] = str(row["reply"])
                kept.by_batch += bool(row.get("batch"))
                if row.get("cut"):
                    kept.cut.add(row["key"])
            kept.spent.add(Tokens(*(int(row.get(name, 0)) for name in ("input", "cached", "output"))))
        except (ValueError, KeyError, TypeError):
            raise DataError(
                "not a cached reply",
                where=f"{path}:{number}",
                fix="remove the line: only its question is asked again",
            ) from None
    return kept
