"""What a sweep makes for itself: commands of vtune that are run once for each seed, before its runs."""

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from vtune.runs.sweep.filling import PREPARED, SEED, filled

RESUMABLE = ("sft", "rl")
"""Verbs whose folder is continued with `--resume`."""


class Command(NamedTuple):
    """One command of a run."""

    name: str
    words: list[str]
    log: Path
    result: Path | None
    """Where its result goes; None where it writes that itself."""
    needed: bool = False
    """Whether the run cannot go on without it."""


def prepared_in(out: Path, seed: int | None) -> Path:
    """The folder of what was prepared for a seed."""
    return out / PREPARED / f"seed-{seed}"


def preparations(
    prepare: Mapping[str, str], at: Mapping[str, Any], seed: int, out: Path
) -> Iterator[Command]:
    """What is left to prepare for a run, in order.

    Args:
        prepare: Name -> command, as the sweep has it.
        at: Axis -> its value.
        seed: Of the run.
        out: The sweep's folder.
    """
    folder = prepared_in(out, seed)
    known = {**at, SEED: seed, PREPARED: str(folder)}
    for title, command in prepare.items():
        name = filled(title, at)
        result = folder / f"{name}.json"
        if result.exists():
            continue
        folder.mkdir(parents=True, exist_ok=True)
        words = [str(filled(word, known)) for word in shlex.split(command)]
        begun = words[0] in RESUMABLE and (_out(words) / "recipe.yaml").exists()
        log = folder / f"{name}.log"
        words += ["--json", *(["--resume"] if begun else [])]
        yield Command(f"preparation of {name}", words, log, result, needed=True)


def _out(words: list[str]) -> Path:
    """The folder that a command line names."""
    return Path(words[words.index("--out") + 1])
