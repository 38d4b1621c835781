"""What a sweep prepares for itself: vtune commands that run once per seed, before its runs."""

import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from vtune.runs.sweep.placeholders import PREPARED, SEED, filled

RESUMABLE = ("sft", "rl")
"""Verbs whose folder can be resumed with `--resume`."""
OUTPUTS = ("--out", "--tiny")
"""Options that name a command's outputs."""


class Command(NamedTuple):
    """One command of a run."""

    name: str
    words: list[str]
    log: Path
    result: Path | None
    """File for its result; None if it writes that itself."""
    needed: bool = False
    """Whether the run cannot go on without it."""
    shared: bool = False
    """Whether other runs of the seed need it, too, and wait for it."""


def prepared_in(out: Path, seed: int | None) -> Path:
    """The folder of what was prepared for a seed."""
    return out / PREPARED / f"seed-{seed}"


def commands_in(
    folder: Path, prepare: Mapping[str, str], at: Mapping[str, Any], seed: int
) -> dict[str, list[str]]:
    """Name -> words of each command, with placeholders filled in; `folder` is `{prepared}`."""
    known = {**at, SEED: seed, PREPARED: str(folder)}
    return {
        str(filled(name, at)): [str(filled(word, known)) for word in shlex.split(command)]
        for name, command in prepare.items()
    }


def preparations(
    prepare: Mapping[str, str], at: Mapping[str, Any], seed: int, out: Path, needed: Sequence[str]
) -> Iterator[Command]:
    """What is left to prepare for a run, in order.

    Args:
        prepare: Name -> command, as in the sweep.
        at: Axis -> its value.
        seed: The run's seed.
        out: The sweep's folder.
        needed: Paths that the run reads, with `{prepared}` in them; what is not read is not made.
    """
    folder = prepared_in(out, seed)
    commands = commands_in(folder, prepare, at, seed)
    known = {**at, SEED: seed, PREPARED: str(folder)}
    for name, words in _read_by(commands, [str(filled(path, known)) for path in needed]):
        result = folder / f"{name}.json"
        if result.exists():
            continue
        folder.mkdir(parents=True, exist_ok=True)
        begun = words[0] in RESUMABLE and (_out(words) / "recipe.yaml").exists()
        if words[0] not in RESUMABLE:
            done = [own for one, own in commands.items() if (folder / f"{one}.json").exists()]
            _clear(words, folder, [path for own in done for path in _outputs(own)])
        log = folder / f"{name}.log"
        words = [*words, "--json", *(["--resume"] if begun else [])]
        yield Command(f"preparation of {name}", words, log, result, needed=True, shared=True)


def _read_by(commands: Mapping[str, list[str]], texts: Sequence[str]) -> list[tuple[str, list[str]]]:
    """The commands whose folder appears in `texts`, or in a later one of these commands; in order."""
    found, read = [], [*texts]
    for name, words in reversed([*commands.items()]):
        folder = re.compile(re.escape(str(_out(words))) + r"(?![\w.+-])")
        if any(folder.search(text) for text in read):
            found.append((name, words))
            read += [word for word in words if word != str(_out(words))]
    return found[::-1]


def _clear(words: Sequence[str], folder: Path, kept: Sequence[Path]) -> None:
    """Remove what an interrupted command left, as it would refuse to overwrite it: folders below `folder`
    that contain nothing in `kept`.
    """
    for path in _outputs(words):
        holds = any(path in (one, *one.parents) for one in kept)
        if folder.absolute() in path.parents and path.is_dir() and not holds:
            shutil.rmtree(path)


def _outputs(words: Sequence[str]) -> list[Path]:
    """A command's outputs."""
    return [Path(value).absolute() for option, value in pairwise(words) if option in OUTPUTS]


def _out(words: Sequence[str]) -> Path:
    """The output folder of a command line."""
    return Path(words[words.index("--out") + 1])
