"""People's labels of trajectories, one JSON object per line; the last one about a trajectory counts."""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args

from vtune.errors import DataError
from vtune.files.json_text import parse_json
from vtune.files.locks import lock
from vtune.files.reading import whole_lines

Judgement = Literal["right", "wrong", "judge erred", "box wrong"]
"""right, wrong: whether the answer is, whatever it earned. judge erred: a verdict or a reason is mistaken.
box wrong: the sample's evidence box is in the wrong place."""

NOTE = 2_000
"""Limit on the characters of a note (ours)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A person's label for one trajectory, or sample."""

    key: str
    """Key of the trajectory: stem of its file, and row."""
    sample_id: str
    source: str
    rollout: int | None
    label: Judgement | None
    """None withdraws an earlier label."""
    accuracy: float | None = None
    """What the answer had earned when it was labelled; None for a sample, or if it was unscored."""
    note: str = ""
    at: str = ""
    """Time of labelling, in UTC, as ISO 8601."""


def read_labels(path: Path) -> dict[str, Label]:
    """Key of a trajectory -> its label; empty if there is no file.

    A last line without a line break is ignored: it is being written, or was cut off by a kill.

    Raises:
        DataError: Names the first line that cannot be read.
    """
    if not path.exists():
        return {}
    found = {label.key: label for label in _lines(path)}
    return {key: label for key, label in found.items() if label.label is not None}


def append_label(path: Path, label: Label) -> None:
    """Append one complete line to the file.

    Raises:
        OSError: If it cannot be written.
    """
    line = json.dumps(asdict(label), ensure_ascii=False, allow_nan=False) + "\n"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    # Not `os.write`, which on a nearly full disk writes the first part only and reports no error.
    with open(descriptor, "ab") as file:
        lock(descriptor, wait=True)  # another viewer may be writing, too
        whole = os.pread(descriptor, os.fstat(descriptor).st_size, 0).rfind(b"\n") + 1
        os.ftruncate(descriptor, whole)  # a line truncated by a kill is not a label
        file.write(line.encode())


def _lines(path: Path) -> Iterator[Label]:
    try:
        lines = whole_lines(path, repair=False)
    except OSError as error:
        raise DataError(f"labels cannot be read: {error}", where=str(path), fix="restore the file") from None
    for number, line in enumerate(lines, start=1):
        try:
            yield _label(parse_json(line))
        except (ValueError, TypeError) as error:
            raise DataError(
                f"not a label: {error}", where=f"{path}:{number}", fix="correct or remove the line"
            ) from None


def _label(values: object) -> Label:
    """The label in a line.

    Raises:
        ValueError: If it is not a label.
        TypeError: If keys are missing or unknown.
    """
    if not isinstance(values, dict):
        raise ValueError("it is not an object")
    label = Label(**values)
    if label.label is not None and label.label not in get_args(Judgement):
        raise ValueError(f"`label` is one of {', '.join(get_args(Judgement))}, not {label.label!r}")
    for name in ("key", "sample_id", "source", "note", "at"):
        if not isinstance(getattr(label, name), str):
            raise ValueError(f"`{name}` is a text")
    if label.accuracy is not None and not isinstance(label.accuracy, int | float):
        raise ValueError("`accuracy` is a number or null")
    if len(label.note) > NOTE:
        raise ValueError(f"a note has at most {NOTE} characters")
    return label
