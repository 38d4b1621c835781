"""`uses` in a recipe: files with a user's own parts, loaded before any part is looked up by name.

A file is run once in a process, and what it adds to the tables of `vtune.registry` stays there, as what a
module brings does. Other processes are given its text, never its path, so that all of them run the same code.
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
from vtune.parts import WORDS
from vtune.registry import TABLES

T = TypeVar("T")

USES = "uses"
"""In a run folder: copies of the files with a user's own parts."""
TRIES = "`vtune parts check` of the file tries it"
"""Ends the next step where one of them is broken."""

ADD = (
    'end it with a line such as VERIFIERS.add("name", Verifier(…)): see cli/parts.md; what other files '
    "import is no file of parts: write it into them"
)
"""The next step for a file that adds nothing."""
WRAP = (
    "wrap `compute_score` as a verifier, whose `verify(reply, sample)` returns `Verdict(compute_score("
    'sample.source, reply, sample.ground_truth, sample.extra), "by compute_score")`: see "A function of '
    'another trainer" in cli/parts.md'
)
"""The same for one with a reward function as verl calls it."""


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
    if path.suffix != ".py":
        raise RecipeError(
            f"{path} is not a file of Python", fix="name a .py file that adds parts: see cli/parts.md"
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
        alone = _takes_from(file, error)
        raise RecipeError(
            f"{file.name} {alone}, and a run keeps {file.name} alone"
            if alone
            else f"{file.name} cannot be loaded: {what}",
            where=f"{file.path}:{line_of(error, file.path)}",
            fix=f"parts are one file: write what it takes from elsewhere into {file.name}, or install that"
            if alone
            else "correct the line; `vtune parts check` of the file tries it again",
        ) from None


def _takes_from(file: Used, error: BaseException) -> str:
    """What a user's file wanted of a file beside it, in words; empty where an error is of something else."""
    if not isinstance(error, ImportError):
        return ""
    if not error.name:
        return "has a relative import" if "relative import" in str(error) else ""
    path = Path(file.path).parent / error.name.partition(".")[0]
    if path.with_suffix(".py").is_file():
        return f"imports {path.name}.py, which lies beside it"
    return f"imports {path.name}/, which lies beside it" if path.is_dir() else ""


def _check_added(file: Used, others: Collection[str]) -> None:
    """Check that a file has added parts, all of them itself: what it imports is not copied into a run."""
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


def broken(error: BaseException, part: tuple[str, str] | None = None) -> BrokenPart | None:
    """What broke in a user's file, as an error with its line; None where none of their files is to blame.

    An error that says whose move is next (a VtuneError) is left alone. This is the one place that tells a
    user's bug from ours: the command line asks it, and whoever hands errors to another process.

    Args:
        error: Whatever came up; of a group, the first that came out of a user's file.
        part: (kind, name) of the part that it is known to have come out of; None: the traceback says.

    Returns:
        With the original as its `__cause__`.
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
    """The failure after which a run keeps what it has trained: its own, or that of a user's part.

    Returns:
        None for all others: a bug of ours, or an error whose remedy is not that of a run.
    """
    return error if isinstance(error, RunFailed) else broken(error)


def given(found: object, wanted: type[T], kind: str, name: str, by: Callable[..., Any] | None = None) -> T:
    """What a part gave, which has to be an instance of something.

    Args:
        found: What it gave.
        wanted: Its class.
        kind: Of the part.
        name: Of the part.
        by: The function that gave it, where one is known.

    Raises:
        BrokenPart: If a user's own gave something else, with the line of the function.
    """
    if isinstance(found, wanted):
        return found
    what = f"it gives {type(found).__name__}, not {wanted.__name__}"
    raise ill_made((kind, name), what, "correct the line", "" if by is None else defined(by))


async def awaited(part: tuple[str, str], called: Callable[..., Any], *arguments: Any) -> Any:
    """What a function or method of a part gives once it is awaited.

    Args:
        part: (kind, name) of the part.
        called: The function.
        arguments: That it is given.

    Raises:
        BrokenPart: If a user's own has forgotten its `async`.
    """
    found = called(*arguments)
    if isinstance(found, Awaitable):
        return await found
    name = getattr(called, "__name__", "it")
    what = f"`{name}` is not `async`: it gives {type(found).__name__} at once"
    raise ill_made(part, what, f"write `async def {name}(…)`", defined(called))


def defined(function: Callable[..., Any]) -> str:
    """The file and line at which a function begins; empty where it has none."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else ""


def ill_made(part: tuple[str, str], what: str | Exception, fix: str, where: str = "") -> Exception:
    """The error for a part that is not made as its kind is; of a user's own with its file.

    Args:
        part: (kind, name) of the part.
        what: Is wrong, in words, or the error.
        fix: The remedy.
        where: The line; empty, or of another file: the file.
    """
    wrong = what if isinstance(what, Exception) else TypeError(what)
    failed = broken(wrong, part)
    if failed is None:
        return wrong
    if where.startswith(f"{failed.where}:"):  # a base class or a library may have the function
        failed.where = where
    failed.fix = f"{fix}; {TRIES}"
    return failed


def uncancelled(error: asyncio.CancelledError) -> RuntimeError | None:
    """What a part did that raised this in the task that runs now, which nobody has cancelled.

    It waited for something that was cancelled. Passed on, the error would end the task without a word.

    Returns:
        With the line of the original; None where somebody has cancelled the task.
    """
    task = asyncio.current_task()
    if task is None or task.cancelling():
        return None
    return RuntimeError("what it waited for was cancelled").with_traceback(error.__traceback__)


def _each(error: BaseException) -> Iterator[BaseException]:
    """The error, or those of a group."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _each(one)
    elif isinstance(error, Exception | SystemExit):
        yield error
