"""The one place that prepares an output: what cannot or must not be written is refused before any work.

A file appears under its name only when it is complete. A device, a pipe or a socket is never replaced by a
file, nor a folder by any of them, and nothing is written over, or into, an input.
"""

import errno
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from vtune.errors import RecipeError, RunFailed
from vtune.files.reading import kind_of
from vtune.files.terminal import one_line

OTHER_FORMATS = frozenset(
    {".jsonl", ".json", ".csv", ".tsv", ".txt", ".yaml", ".yml", ".html", ".xlsx", ".arrow", ".gz", ".zip"}
)
"""Suffixes for which a Parquet file would be mistaken for another format."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""Errors for a full disk or an exhausted quota."""


def check_file_output(path: Path, *, inputs: Sequence[Path] = (), option: str = "--out") -> None:
    """Check that a file can be written, and create its folder.

    Args:
        path: The file.
        inputs: Files and folders that are read meanwhile.
        option: The option that named it, for the remedy.

    Raises:
        RecipeError: If it is a folder or a device, an input or an existing file in one, or not writable.
    """
    kind = _kind(path, option)
    if kind is not None:
        raise RecipeError(f"{_shown(path)} is {kind}, not a file", fix=f"choose another {option}")
    # A new file in an input folder is fine: it is not among the files found there.
    _apart(path, inputs if path.exists() else [given for given in inputs if not given.is_dir()], option)
    target = _target(path)
    probe = _beside(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        raise unwritable(path, error, option) from None


def check_parquet_output(path: Path, *, inputs: Sequence[Path] = (), option: str = "--out") -> None:
    """`check_file_output` for a Parquet file: other programs go by the suffix of a file.

    Raises:
        RecipeError: As in `check_file_output`, or if the suffix is that of another format.
    """
    if path.suffix.lower() in OTHER_FORMATS:
        lines = "; `vtune data export samples` makes JSON lines of samples"
        raise RecipeError(
            f"{_shown(path)} ends in {path.suffix}, but this command writes Parquet",
            fix=f"{option} {_shown(path.with_suffix('.parquet'))}"
            + (lines if path.suffix.lower() in (".json", ".jsonl") else ""),
        )
    check_file_output(path, inputs=inputs, option=option)


def check_folder_output(path: Path, *, inputs: Sequence[Path] = (), option: str = "--out") -> None:
    """Check that a folder can be written to, or could be created; it is not created.

    Raises:
        RecipeError: If it is a file or a device, is or lies in an input, or cannot be written to.
    """
    kind = _kind(path, option)
    if kind not in (None, "a folder") or (kind is None and path.exists()):
        raise RecipeError(f"{_shown(path)} is {kind or 'a file'}", fix=f"choose another {option}")
    _apart(path, inputs, option)
    if path.is_symlink() and not path.exists():
        raise RecipeError(f"{_shown(path)} is a dangling link", fix=f"choose another {option}")
    there = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
    probe = there / f".{secrets.token_hex(8)}.part"
    try:
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        raise unwritable(path, error, option) from None


@contextmanager
def atomic_file(path: Path, *, option: str | None = "--out") -> Iterator[Path]:
    """Yields a name to write to; on exit its content becomes the file, unless there was an error.

    Args:
        path: The file; the target of a symbolic link is written, and the link stays.
        option: The option that named it, for the remedy; None if its place in the run's folder is fixed.

    Raises:
        RecipeError: If the file cannot be written.
        RunFailed: If there is no room for it.
    """
    kind = _kind(path, option)
    if kind is not None:
        raise RecipeError(
            f"{_shown(path)} is {kind}, not a file",
            fix="move it away" if option is None else f"choose another {option}",
        )
    target = _target(path)
    partial = _beside(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial.touch(exist_ok=False)
    except OSError as error:
        raise unwritable(path, error, option) from None
    try:
        yield partial
        partial.replace(target)
    except OSError as error:
        if error.errno not in (*NO_ROOM, errno.EROFS):
            raise  # from something that was read meanwhile
        raise unwritable(path, error, option) from None
    finally:
        with suppress(OSError):  # a file system that has become read-only keeps it; that is reported above
            partial.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path, *, option: str = "--out") -> Iterator[Path]:
    """Yields an empty folder to fill; on exit it gets its name, unless there was an error.

    Args:
        path: The folder, which does not exist.
        option: The option that named it, for the remedy.

    Raises:
        RecipeError: If it cannot be written, or another process has written it meanwhile.
        RunFailed: If there is no room for it.
    """
    partial = _beside(path)
    try:
        partial.mkdir(parents=True)
    except OSError as error:
        raise unwritable(path, error, option) from None
    try:
        yield partial
        _take_place(partial, path, option)
    except OSError as error:
        if error.errno not in (*NO_ROOM, errno.EROFS):
            raise  # from something that was read meanwhile
        raise unwritable(path, error, option) from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _take_place(partial: Path, path: Path, option: str) -> None:
    try:
        partial.rename(path)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
        raise RecipeError(f"{_shown(path)} exists", fix=f"choose another {option}, or remove it") from None


def write_atomically(path: Path, content: str | bytes, *, option: str | None = "--out") -> None:
    """Write a file so that it is there completely or not at all.

    Args:
        path: The file.
        content: All of it.
        option: As in `atomic_file`.

    Raises:
        RecipeError: If it cannot be written.
        RunFailed: If there is no room for it.
    """
    with atomic_file(path, option=option) as partial:
        partial.write_bytes(content.encode() if isinstance(content, str) else content)


def open_to_others(path: Path) -> None:
    """Let everyone read a file who may read its folder.

    safetensors makes files readable only for their owner, regardless of the umask: a colleague, or another
    user's server, could read all of a model except its weights. If the disk does not support this, nothing
    changes: a finished checkpoint must not fail because of it.
    """
    mode = path.stat().st_mode
    wanted = mode | (path.parent.stat().st_mode & 0o444)
    if wanted != mode:
        with suppress(OSError):
            path.chmod(wanted & 0o7777)


@contextmanager
def appending(path: Path, *, option: str | None = None) -> Iterator[None]:
    """Report an OSError with the name of the file, which one from writing to an open file lacks.

    Args:
        path: The file.
        option: The option that named it, for the remedy; None if its place in the run's folder is fixed.

    Raises:
        RecipeError: If the file cannot be written.
        RunFailed: If there is no room for it.
    """
    try:
        yield
    except OSError as error:
        raise unwritable(path, error, option) from None


def unwritable(path: Path, error: OSError, option: str | None) -> RecipeError | RunFailed:
    """The error for an output that cannot be written; a full disk is not the fault of the input.

    Args:
        path: The output.
        error: The error from the system.
        option: The option that names another place for it; None if its place in the run's folder is fixed.
    """
    why = error.strerror or str(error)
    other = "" if option is None else f"choose another {option}, or "
    if error.errno in NO_ROOM:
        return RunFailed(
            f"{_shown(path)} cannot be written: {why}",
            fix=f"{other}make room (`df -h`) and start again, with --resume where the command has it",
        )
    if isinstance(error, FileExistsError | NotADirectoryError):
        # Something on the path that should be a folder is a file.
        files = [_shown(parent) for parent in (path, *path.parents) if parent.is_file()]
        why = f"{files[0]} is a file, not a folder" if files else why
    return RecipeError(
        f"{_shown(path)} cannot be written: {why}",
        fix=f"{other}check its folder and your permissions there",
    )


def _kind(path: Path, option: str | None) -> str | None:
    """The kind of an existing file that is not regular; None for a regular file, or if nothing exists."""
    try:
        return kind_of(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError:
        raise RecipeError(
            f"{_shown(path)} is not a valid file name", fix=f"choose another {option or 'folder'}"
        ) from None
    except OSError as error:
        if error.errno == errno.EACCES:
            return None  # writing to it will report this
        raise unwritable(path, error, option) from None


def _apart(path: Path, inputs: Sequence[Path], option: str) -> None:
    """Check that an output is not an input, and not inside one."""
    place = os.path.realpath(path)
    for given in inputs:
        source = os.path.realpath(given)
        if place == source or (given.is_dir() and Path(place).is_relative_to(source)):
            within = "is" if place == source else f"lies in {_shown(given)},"
            raise RecipeError(
                f"{_shown(path)} {within} an input of this command", fix=f"choose another {option}"
            )


def _target(path: Path) -> Path:
    """What is written for an output: a file that a symbolic link names, on whatever disk it lies."""
    return Path(os.path.realpath(path)) if path.is_symlink() else path


def _beside(path: Path) -> Path:
    """A hidden name in the same folder, unique to this write, and not longer than names may be."""
    name = os.fsdecode(os.fsencode(path.name)[:80])
    return path.with_name(f".{name}.{secrets.token_hex(6)}.part")


def _shown(path: Path) -> str:
    return one_line(str(path))[:300]
