"""The messages of all commands with bad input as one machine-independent text."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.fuzz.cases import Case

VARIES = (
    # A library's own message or version, which follows ours.
    (r"(?:Parquet magic|Parquet file size|Couldn't deserialize|Memory mapping)[^;\n]*", "…"),
    (r"\b\d+ bytes", "N bytes"),
    (r"from \d+ bytes to \d+", "from N bytes to N"),
    # Lists of shipped names: a new one does not change the message.
    (r"((?:[\w./-]+, ){3})(?:[\w./-]+, )+[\w./-]+", r"\1…"),
    (r"(.)\1{39,}", r"\1\1\1…"),
)
PROGRESS = re.compile(r"\w+: \d+(?:/\d+| rows)\s*")


def messages(outcomes: Mapping[Case, Mapping[str, Any]], folders: Mapping[Path, str]) -> str:
    """By verb: each distinct message once, below the names of all cases that give it.

    Messages that differ only in a path count as the same, and the first is shown. `folders` has a name for
    each folder whose location depends on the machine.
    """
    verbs: dict[str, dict[str, tuple[str, list[str]]]] = {}
    for case, result in outcomes.items():
        said = _said(result, folders)
        if said:
            shape = re.sub(rf"(?:{'|'.join(folders.values())})/[^\s:;,'`]*", "PATH", said)
            _, names = verbs.setdefault(_verb(case), {}).setdefault(shape, (said, []))
            names.append(case.name)
    return "\n".join(line for verb, shapes in sorted(verbs.items()) for line in _lines(verb, shapes))


def _lines(verb: str, shapes: Mapping[str, tuple[str, list[str]]]) -> Iterator[str]:
    yield f"===== vtune {verb}\n"
    for said, names in shapes.values():
        yield from (f"--- {name}" for name in names)
        yield f"{said}\n"


def _verb(case: Case) -> str:
    """The verb, including the second word if the first is a group of verbs."""
    groups = ("data", "recipes", "sandbox", "serve")
    return " ".join(case.words[: 1 + (case.words[0] in groups)])


def _said(result: Mapping[str, Any], folders: Mapping[Path, str]) -> str:
    """stderr without progress lines, plus the lines on bad rows from stdout."""
    lines = [line for line in result["stderr"].splitlines() if not PROGRESS.fullmatch(line)]
    starts = tuple(f"{left}{folder}" for folder in folders for left in ("", "left out: ", "cannot read "))
    lines += [line for line in result["stdout"].splitlines() if line.startswith(starts)]
    text = "\n".join(line.rstrip() for line in lines if line.strip())
    for folder, name in folders.items():
        text = text.replace(str(folder), name)
    for pattern, instead in VARIES:
        text = re.sub(pattern, instead, text)
    return text
