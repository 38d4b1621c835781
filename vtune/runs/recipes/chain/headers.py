"""The commands in a recipe's comments: which ones make the files that it reads, and where its output goes."""

import functools
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vtune.errors import RecipeError
from vtune.files.reading import read_text

FLAGS = (
    *(
        "--all",
        "--csv",
        "--dry-run",
        "--feedback",
        "--resume",
        "--strict",
        "--json",
        "--latex",
        "--once",
        "--pictures",
        "--vllm",
    ),
    *("--claimed", "--compare", "--credit", "--every-call", "--list", "--replies", "--reward", "--self-test"),
)
"""Options that take no value."""
_LINE = re.compile(r"#\s+vtune\s+(\S.*)")
_REMARK = re.compile(r"\s{2,}[(#].*")
"""Remark for readers after a command, two or more spaces away."""
_NEXT = re.compile(r"\s*(?:;|&&)\s*vtune\s+")
_PLACE = re.compile(r"\b[A-Z][A-Z_]+\b")


@dataclass(frozen=True, slots=True)
class Command:
    """A command line without `vtune`."""

    words: tuple[str, ...]
    """Everything that is not an option: verbs, names, paths."""
    options: Mapping[str, tuple[str, ...]]
    """Option, with its dashes -> its values; empty for a flag."""
    text: str

    def value(self, option: str) -> str | None:
        """The last value of an option; None if it is not given."""
        values = self.options.get(option, ())
        return values[-1] if values else None

    def begins(self, *words: str) -> bool:
        """Whether it starts with these words."""
        return self.words[: len(words)] == words


def commands_of(path: Path) -> list[Command]:
    """The commands in the comment lines of a file.

    Raises:
        RecipeError: If one cannot be parsed, e.g. because of an open quote.
    """
    return list(_commands(path))


def _commands(path: Path) -> Iterator[Command]:
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        found = _LINE.fullmatch(line.rstrip())
        if found is None:
            continue
        for text in _NEXT.split(_REMARK.sub("", found[1])):
            try:
                words = shlex.split(text)
            except ValueError as error:
                raise RecipeError(
                    f"not a command line: {error}",
                    where=f"{path}:{number}",
                    fix="correct it, or write it as prose",
                ) from None
            yield command_of(words)


def command_of(words: Sequence[str]) -> Command:
    """Split a command line into words and options."""
    plain: list[str] = []
    options: dict[str, list[str]] = {}
    rest = iter(words)
    for word in rest:
        if not word.startswith("--"):
            plain.append(word)
            continue
        name, equals, value = word.partition("=")
        values = options.setdefault(name, [])
        if equals:
            values.append(value)
        elif name not in FLAGS:
            values.extend([following] if (following := next(rest, None)) is not None else [])
    kept = {name: tuple(values) for name, values in options.items()}
    return Command(tuple(plain), kept, shlex.join(words))


def fits(pattern: str, path: str) -> bool:
    """Whether a path is one that a command names; capitals (`data/SOURCE.parquet`) match any name."""
    return _pattern(pattern).fullmatch(_plain(path)) is not None


@functools.cache
def _pattern(pattern: str) -> re.Pattern[str]:
    return re.compile("[^/]+".join(re.escape(part) for part in _PLACE.split(_plain(pattern))))


@functools.cache
def _plain(path: str) -> str:
    """The path without dots and double slashes. Cached: every path meets every pattern of a walk."""
    return str(Path(path))
