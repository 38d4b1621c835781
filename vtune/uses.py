"""`uses` in a recipe: files with a user's own parts, loaded before any part is looked up by name.

A file is run once per process, and what it adds to the tables of `vtune.registry` stays there, as with any
module. Other processes get its text, never its path, so that all of them run the same code.
"""

import asyncio
import hashlib
import inspect
import sys
import traceback
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from vtune.errors import BrokenPart, OutOfRange, RecipeError, RunFailed, VtuneError
from vtune.manners import guard, staying
from vtune.parts import WORDS
from vtune.registry import TABLES
from vtune.waits import waiting

T = TypeVar("T")

USES = "uses"
"""Folder in a run folder: copies of the files with a user's own parts."""
TRIES = "`vtune parts check` of the file tries it"
"""End of the next step if such a file is broken."""

ADD = (
    'end it with a line such as VERIFIERS.add("name", Verifier(…)): see cli/parts.md; a file that '
    "others import is not a file of parts: write its code into them"
)
"""The next step for a file that adds no parts."""
WRAP = (
    "wrap `compute_score` as a verifier, whose `verify(reply, sample)` returns `Verdict(compute_score("
    'sample.source, reply, sample.ground_truth, sample.extra), "by compute_score")`: see "A function of '
    'another trainer" in cli/parts.md'
)
"""The same for a file with a reward function in verl's style."""


@dataclass(frozen=True, slots=True)
class Used:
    """A file with a user's own parts, as it was when it was loaded."""

    path: str
    source: bytes

    @property
    def name(self) -> str:
        """The file's name, under which a run folder keeps it."""
        return Path(self.path).name

    @property
    def sha256(self) -> str:
        """Hash of its content, in hexadecimal."""
        return hashlib.sha256(self.source).hexdigest()

    @property
    def module(self) -> str:
        """The name of its module, derived from its content."""
        return f"vtune_uses_{self.sha256[:16]}"

    @property
    def parts(self) -> list[tuple[str, str]]:
        """(kind, name) of everything that it has added in this process."""
        return [(kind, name) for kind, table in TABLES.items() for name in table.of(self.module)]


_LOADED: dict[str, Used] = {}
"""Module -> file. Per process, like `sys.modules`, which has an entry for each of them."""


def use(files: Iterable[str | Path]) -> list[Used]:
    """Load files with a user's own parts; a file that is already loaded, under any path, is skipped.

    Raises:
        RecipeError: If one cannot be read or loaded, adds nothing, or has the name of another; with its line.
    """
    return take(_read(Path(file)) for file in files)


def take(files: Iterable[Used]) -> list[Used]:
    """`use` for files that another process has read.

    Raises:
        RecipeError: As in `use`.
    """
    found = []
    for file in files:
        if file.module not in _LOADED:
            guard(_paths)
            _LOADED[file.module] = file  # before it runs: it may already hang there
            _run(file)
        found.append(_LOADED[file.module])
    return found


def _paths() -> set[str]:
    return {file.path for file in _LOADED.values()}


def used() -> tuple[Used, ...]:
    """All files that this process has loaded, in order."""
    return tuple(_LOADED.values())


def forget(files: Sequence[Used]) -> None:
    """Remove what these files have added."""
    for file in files:
        _drop(file.module)
        sys.modules.pop(file.module, None)
        _LOADED.pop(file.module, None)


def prints(kinds: Iterable[str] = ()) -> dict[str, str]:
    """Name -> SHA-256 of all loaded files, or of those that added a part of the given kinds.

    Raises:
        RecipeError: If two files have the same name.
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
    if path.suffix != ".py":
        raise RecipeError(
            f"{path} is not a Python file", fix="name a .py file that adds parts: see cli/parts.md"
        )
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
        with staying():
            exec(compile(file.source, file.path, "exec", dont_inherit=True), module.__dict__)
        _check_added(file, _modules() - known - {file.module})
    except BaseException as error:
        forget([file])
        for name in _modules() - known:
            _drop(name)
            sys.modules.pop(name, None)  # so that the next attempt gets the same error
        if isinstance(error, VtuneError) and error.where.startswith(file.path):
            raise
        if not isinstance(error, Exception | SystemExit):
            raise  # Ctrl-C
        what = error.what if isinstance(error, VtuneError) else f"{type(error).__name__}: {error}"
        alone = _takes_from(file, error)
        raise RecipeError(
            f"{file.name} {alone}, but a run keeps {file.name} alone"
            if alone
            else f"{file.name} cannot be loaded: {what}",
            where=f"{file.path}:{line_of(error, file.path)}",
            fix=f"parts are one file: write what it takes from elsewhere into {file.name}, or install that"
            if alone
            else "correct the line; `vtune parts check` of the file tries it again",
        ) from None


def _takes_from(file: Used, error: BaseException) -> str:
    """What a user's file needed from a file next to it, as text; empty if an error has another cause."""
    if not isinstance(error, ImportError):
        return ""
    if not error.name:
        return "has a relative import" if "relative import" in str(error) else ""
    path = Path(file.path).parent / error.name.partition(".")[0]
    if path.with_suffix(".py").is_file():
        return f"imports {path.name}.py, which is next to it"
    return f"imports {path.name}/, which is next to it" if path.is_dir() else ""


def _check_added(file: Used, others: Collection[str]) -> None:
    """Check that a file has added parts, all by itself: files that it imports are not copied into a run."""
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
            fix=WRAP if hasattr(sys.modules[file.module], "compute_score") else ADD,
        )


def _modules() -> set[str]:
    """The modules, except ours, that have added parts."""
    return set().union(*(table.modules() for table in TABLES.values()))


def _drop(module: str) -> None:
    for table in TABLES.values():
        table.drop(module)


def line_of(error: BaseException, path: str) -> int:
    """The line of a file at which an error was raised."""
    if isinstance(error, SyntaxError) and error.filename == path:
        return error.lineno or 1
    frames = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return (frames[-1] if frames else None) or 1


def broken(error: BaseException, part: tuple[str, str] | None = None) -> BrokenPart | None:
    """An error in a user's file, as a BrokenPart with its line; None if no such file is to blame.

    Errors that already name the next step (VtuneError) are left alone. This is the only place that
    distinguishes a user's bug from ours; the command line calls it, as does anything that passes errors to
    another process.

    Args:
        error: Any error; of a group, the first one raised in a user's file is used.
        part: (kind, name) of the part that is known to have raised it; None: the traceback decides.

    Returns:
        Has the original as its `__cause__`.
    """
    files = {file.path: file for file in used()}
    for one in _each(error):
        if isinstance(one, VtuneError) and part is None:
            continue
        frames = [f for f in traceback.extract_tb(one.__traceback__) if f.filename in files]
        if not frames and part is None:
            continue
        if frames:
            file, where = files[frames[-1].filename], f"{frames[-1].filename}:{frames[-1].lineno}"
        else:
            brought = next((file for file in files.values() if part in file.parts), None)
            if brought is None:
                continue
            file, where = brought, brought.path
        parts = [part] if part is not None else file.parts
        of = " or ".join(f"{WORDS.get(kind, kind)} `{name}`" for kind, name in parts)
        failed = BrokenPart(
            f"{of} of {file.name} is broken: {type(one).__name__}: {one}",
            where=where,
            fix=f"{one.fix if isinstance(one, OutOfRange) else 'correct the line'}; {TRIES}",
        )
        failed.__cause__ = one
        return failed
    return None


def run_failure(error: Exception) -> RunFailed | None:
    """The failure after which a run keeps what it has trained: the run's own, or that of a user's part.

    Returns:
        None for all others: a bug of ours, or an error whose remedy is not about the run.
    """
    return error if isinstance(error, RunFailed) else broken(error)


def given(found: object, wanted: type[T], kind: str, name: str, by: Callable[..., Any] | None = None) -> T:
    """A part's result, checked to be an instance of a class.

    Args:
        found: The result.
        wanted: The class.
        kind: Kind of the part.
        name: Name of the part.
        by: The function that returned it, if known.

    Raises:
        BrokenPart: If a user's own part returned something else, with the line of the function.
    """
    if isinstance(found, wanted):
        return found
    what = f"it returns {type(found).__name__}, not {wanted.__name__}"
    raise ill_made((kind, name), what, "correct the line", "" if by is None else defined(by))


async def awaited(part: tuple[str, str], called: Callable[..., Any], *arguments: Any) -> Any:
    """The awaited result of a function or method of a part.

    Args:
        part: (kind, name) of the part.
        called: The function.
        arguments: Its arguments.

    Raises:
        BrokenPart: If a user's own function lacks `async`, or exits.
    """
    try:
        found = called(*arguments)
        if isinstance(found, Awaitable):
            with waiting(part, found):
                return await found
    except SystemExit as error:  # it would end the event loop, and leave every other task unawaited
        raise broken(error, part) or error from error
    name = getattr(called, "__name__", "it")
    what = f"`{name}` is not `async`: it returns {type(found).__name__} at once"
    raise ill_made(part, what, f"write `async def {name}(…)`", defined(called))


def defined(function: Callable[..., Any]) -> str:
    """The file and line at which a function begins; empty if unknown."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""


def ill_made(part: tuple[str, str], what: str | Exception, fix: str, where: str = "") -> Exception:
    """The error for a part that does not meet its kind's requirements; for a user's own part with its file.

    Args:
        part: (kind, name) of the part.
        what: What is wrong, as text or as an error.
        fix: The remedy.
        where: The line; if empty, or in another file, only the file is named.
    """
    wrong = what if isinstance(what, Exception) else TypeError(what)
    failed = broken(wrong, part)
    if failed is None:
        return wrong
    if where.startswith(f"{failed.where}:"):  # the function may be in a base class or a library
        failed.where = where
    failed.fix = f"{fix}; {TRIES}"
    return failed


def uncancelled(error: asyncio.CancelledError) -> RuntimeError | None:
    """The error to raise if a part raised CancelledError although nobody has cancelled the current task.

    The part waited for something that was cancelled. Passed on, the error would end the task silently.

    Returns:
        Has the traceback of the original; None if the task really was cancelled.
    """
    task = asyncio.current_task()
    if task is None or task.cancelling():
        return None
    return RuntimeError("what it waited for was cancelled").with_traceback(error.__traceback__)


def _each(error: BaseException) -> Iterator[BaseException]:
    """The error, or the members of a group."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _each(one)
    elif isinstance(error, Exception | SystemExit):
        yield error
