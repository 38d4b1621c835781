"""`uses` of a recipe: files with a user's own parts, loaded before anything looks for their names.

A file is run once in a process, and what it adds to the tables of `vtune.parts` stays there, as what a module
brings does. Other processes are given its text, never its path, so that all of them run the same code.
"""

import hashlib
import sys
import traceback
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from vtune.errors import RecipeError, VtuneError
from vtune.parts import TABLES


@dataclass(frozen=True, slots=True)
class Used:
    """A file of a user's own parts, as it was when it was loaded."""

    path: str
    source: bytes

    @property
    def name(self) -> str:
        """The file's name, by which a run folder keeps it."""
        return Path(self.path).name

    @property
    def sha256(self) -> str:
        """Of its content, in hexadecimal."""
        return hashlib.sha256(self.source).hexdigest()

    @property
    def module(self) -> str:
        """The name of its module, which is its content's."""
        return f"vtune_uses_{self.sha256[:16]}"

    @property
    def parts(self) -> list[tuple[str, str]]:
        """(kind, name) of all that it has added in this process."""
        return [(kind, name) for kind, table in TABLES.items() for name in table.of(self.module)]


_LOADED: dict[str, Used] = {}
"""Module -> file. A process has modules, and these are some of them."""


def use(files: Iterable[str | Path]) -> list[Used]:
    """Load files of a user's own parts; a file that is there already, under whatever path, is left alone.

    Raises:
        RecipeError: If one cannot be read or loaded, adds nothing, or has the name of another: with its line.
    """
    return take(_read(Path(file)) for file in files)


def take(files: Iterable[Used]) -> list[Used]:
    """`use` of files that another process has read.

    Raises:
        RecipeError: As `use`.
    """
    found = []
    for file in files:
        if file.module not in _LOADED:
            _run(file)
            _LOADED[file.module] = file
        found.append(_LOADED[file.module])
    return found


def used() -> tuple[Used, ...]:
    """All that this process has loaded, in order."""
    return tuple(_LOADED.values())


def forget(files: Sequence[Used]) -> None:
    """Take out what files have brought."""
    for file in files:
        _drop(file.module)
        sys.modules.pop(file.module, None)
        _LOADED.pop(file.module, None)


def prints(kinds: Iterable[str] = ()) -> dict[str, str]:
    """Name -> SHA-256 of all files that were loaded, or of those that brought a part of some kinds.

    Raises:
        RecipeError: If two files have one name.
    """
    wanted = set(kinds)
    found: dict[str, str] = {}
    for file in used():
        if wanted and not wanted & {kind for kind, _ in file.parts}:
            continue
        if file.name in found:
            raise RecipeError(
                f"two files are called {file.name}", where=file.path, fix="rename one: a run keeps both"
            )
        found[file.name] = file.sha256
    return found


def _read(path: Path) -> Used:
    try:
        return Used(str(path.resolve()), path.read_bytes())
    except OSError as error:
        raise RecipeError(
            f"cannot read {path}: {error.strerror}",
            fix="name a Python file under `uses`; a path in a recipe starts from the recipe's folder",
        ) from None


def _run(file: Used) -> None:
    """Run the text of a file as a module."""
    module: Any = ModuleType(file.module)
    module.__file__ = file.path
    sys.modules[file.module] = module
    known = _modules()
    try:
        exec(compile(file.source, file.path, "exec", dont_inherit=True), module.__dict__)
        _check_added(file, _modules() - known - {file.module})
    except BaseException as error:
        forget([file])
        for name in _modules() - known:
            _drop(name)
            sys.modules.pop(name, None)  # so that the next try meets the same error
        if isinstance(error, VtuneError) and error.where.startswith(file.path):
            raise
        if not isinstance(error, Exception | SystemExit):
            raise  # Ctrl-C
        what = error.what if isinstance(error, VtuneError) else f"{type(error).__name__}: {error}"
        raise RecipeError(
            f"{file.name} cannot be loaded: {what}",
            where=f"{file.path}:{line_of(error, file.path)}",
            fix="correct the line; `vtune parts check` of the file tries it again",
        ) from None


def _check_added(file: Used, others: Collection[str]) -> None:
    """See that a file has added parts, all of them itself: what it imports is not copied into a run."""
    if others:
        raise RecipeError(
            f"{file.name} imports {min(others)}, which adds parts of its own",
            where=file.path,
            fix="name the file that adds them under `uses`",
        )
    if not file.parts:
        raise RecipeError(
            f"{file.name} adds no part",
            where=file.path,
            fix='end it with a line such as VERIFIERS.add("name", Verifier(…)): see cli/parts.md',
        )


def _modules() -> set[str]:
    """Those, not of ours, that have added parts."""
    return set().union(*(table.modules() for table in TABLES.values()))


def _drop(module: str) -> None:
    for table in TABLES.values():
        table.drop(module)


def line_of(error: BaseException, path: str) -> int:
    """The line of a file at which an error came up."""
    if isinstance(error, SyntaxError) and error.filename == path:
        return error.lineno or 1
    frames = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return (frames[-1] if frames else None) or 1
