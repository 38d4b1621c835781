"""A session's workspace as the trainer reads it: through one open folder, never through a link.

The session is stopped while this happens, or has only run contained code (`contained.py`), and nothing that
it claims is relied on: neither which files exist nor what they contain.
"""

import contextlib
import itertools
import os
import stat
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, Self

from vtune.errors import ServiceError
from vtune.sandbox.guest import folders
from vtune.sandbox.guest.paths import PICTURES
from vtune.sandbox.turns import Turns
from vtune.schema.pixels import Refused, check_head

MAX_DEPTH = 16
"""Depth of nested folders that are examined; deeper nesting exceeds the quota."""

PIECE = 1 << 20
"""Bytes read or written before the event loop gets a turn: a fraction of a millisecond. Ours."""

Stamp = tuple[int, int, int]
"""Inode, modification time (ns), size: each version of a file has a different stamp."""
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READABLE = stat.S_IRUSR | stat.S_IXUSR
"""What the owner needs to list a folder."""
PIXELS = ".rgb"
"""Suffix of pixel files."""
INPUT = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Entry(NamedTuple):
    """A file, a folder or anything else in a workspace."""

    name: str
    """Relative to the workspace."""
    facts: os.stat_result
    """Of the entry itself, not of a link's target."""


class NotShown(Exception):
    """A file that cannot be returned as a picture; the text says why."""


class Workspace:
    """One session's folders."""

    def __init__(self, folder: Path, turns: Turns, *, max_files: int, max_bytes: int) -> None:
        self.folder = folder
        """The workspace itself."""
        self._turns = turns
        self._inputs = folder.parent / folders.INPUTS
        self._fd = os.open(folder, FOLDER)
        self._max_files = max_files
        self._max_bytes = max_bytes
        self._seen: dict[str, Stamp] = {}
        self._put: dict[str, str | None] = {}
        """Names of the inputs, in order -> names of their pixel files."""

    @classmethod
    def of(cls, session: str, turns: Turns, *, max_files: int, max_bytes: int) -> Self:
        """The workspace in a session's folder; its files are read and written in these turns."""
        return cls(Path(session) / folders.WORKSPACE, turns, max_files=max_files, max_bytes=max_bytes)

    async def put(self, name: str, content: bytes) -> None:
        """Put a file where the session can only read it, overwriting that of an earlier session.

        Removing and creating files is slow on some disks: ext4 without a journal skips every inode that was
        freed in the last few minutes.
        """
        await self._turns.next()
        path = f"{self._inputs}/{name}"
        try:
            os.chmod(path, 0o600)  # noqa: PTH101 - as in `unlinked_bytes`, a `Path` takes longer than the call
        except FileNotFoundError:
            await self._turns.outside(_make, path)
        with open(os.open(path, INPUT), "wb", buffering=0) as file:
            rest = memoryview(content)
            while rest:
                await self._turns.next()
                rest = rest[file.write(rest[:PIECE]) :]
            file.truncate()
            os.fchmod(file.fileno(), 0o444)
        self._put[name] = None

    async def put_pixels(self, name: str, content: bytes, link: Callable[[bytes, str], bool]) -> None:
        """Let `link` (`PixelFiles.link`) put the pixels of an input next to it, if it can."""
        await self._turns.next()
        file = f"{name}{PIXELS}"
        if link(content, f"{self._inputs}/{file}"):
            self._put[name] = file

    def pixels(self) -> list[str | None]:
        """For each input, the path of its pixel file as seen from the session; None if there is none."""
        return [file and _behind(file) for file in self._put.values()]

    def link_inputs(self, names: Sequence[str]) -> None:
        """Make the inputs reachable under their names in the workspace, whatever has replaced them there.

        Inputs of an earlier session that have other names are removed.
        """
        for name in os.listdir(self._inputs):  # noqa: PTH208
            if name not in self._put and name not in self._put.values():
                os.unlink(f"{self._inputs}/{name}")  # noqa: PTH108
                (self.folder / name).unlink(missing_ok=True)
        for name in names:
            if self._is_linked(name):
                continue
            path = self.folder / name
            if path.is_symlink() or not path.is_dir():
                path.unlink(missing_ok=True)
            else:
                folders.remove(str(path))
            path.symlink_to(_behind(name))

    def _is_linked(self, name: str) -> bool:
        """Whether an input is reachable under its name."""
        try:
            return os.readlink(name, dir_fd=self._fd) == _behind(name)
        except OSError:
            return False

    def set_aside(self) -> str:
        """Start over with an empty workspace for a session whose process has ended.

        Returns:
            Where the old files are now, next to the session folders: removing many takes long.
        """
        facts = os.fstat(self._fd)
        aside = self.folder.parent.with_name(f"{folders.ASIDE}{os.urandom(8).hex()}")
        self.folder.rename(aside)
        self.folder.mkdir(0o700)
        if os.geteuid() == 0:
            os.chown(self.folder, facts.st_uid, facts.st_gid)
        os.close(self._fd)
        self._fd = os.open(self.folder, FOLDER)
        self._seen.clear()
        return str(aside)

    def check_there(self) -> None:
        """Check that nothing outside removed the files, which would otherwise be blamed on the code.

        Raises:
            ServiceError: If the workspace or an input was removed, which the session itself cannot do.
        """
        inputs = all((self._inputs / name).exists() for name in self._put)
        if os.fstat(self._fd).st_nlink == 0 or not inputs:
            raise ServiceError("the session's files were removed from outside")

    def over_quota(self, hidden: int = 0) -> str:
        """The quota that is exceeded, empty if none; `hidden` is the size of files that are in no folder."""
        return self._over_quota(self._entries(), hidden)

    def _over_quota(self, entries: Sequence[Entry], hidden: int = 0) -> str:
        used = hidden
        for entry in entries:
            used += entry.facts.st_blocks * 512
            if entry.name.count("/") >= MAX_DEPTH:
                return f"folders nested deeper than {MAX_DEPTH}"
        if len(entries) > self._max_files:
            return f"more than {self._max_files} files"
        return f"more than {self._max_bytes >> 20} MiB of files" if used > self._max_bytes else ""

    def new_pictures(self, written: Sequence[str]) -> tuple[list[str], str]:
        """The new pictures of a call.

        Args:
            written: Pictures in the order in which the session claims to have written them. This orders files
                of the same clock tick, and reveals a file that was written twice within one.

        Returns:
            Names of the pictures that are new or changed since the last check, in order of creation, and the
            quota that is exceeded, empty if none.
        """
        entries = self._entries()
        order = {name: number for number, name in enumerate(written)}
        found = []
        for name, facts in entries:
            # If a file has a second name, that can only be the name of a file elsewhere.
            plain = stat.S_ISREG(facts.st_mode) and facts.st_nlink == 1
            if not plain or not name.lower().endswith(PICTURES):
                continue
            stamp = (facts.st_ino, facts.st_mtime_ns, facts.st_size)
            if name in order or self._seen.get(name) != stamp:
                found.append((facts.st_mtime_ns, order.get(name, len(order)), name))
                self._seen[name] = stamp
        return [name for _, _, name in sorted(found)], self._over_quota(entries)

    async def read(self, name: str, *, max_bytes: int) -> bytes:
        """A file of the workspace.

        Raises:
            NotShown: If it is too large, not a regular file, or gone.
        """
        await self._turns.next()
        try:
            with contextlib.ExitStack() as stack:
                folder = self._fd
                *parents, last = name.split("/")
                for parent in parents:
                    folder = os.open(parent, FOLDER, dir_fd=folder)
                    stack.callback(os.close, folder)
                fd = os.open(last, FILE, dir_fd=folder)
                file = stack.enter_context(open(fd, "rb"))
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    raise NotShown("it is not a file")
                content = await self._content(file, max_bytes + 1)
        except OSError as error:
            raise NotShown(f"it cannot be read: {error.strerror}") from error
        if len(content) > max_bytes:
            raise NotShown(f"it is larger than {max_bytes >> 20} MiB")
        return content

    async def _content(self, file: BinaryIO, left: int) -> bytes:
        """The first `left` bytes of a file, or all of it if it is shorter."""
        pieces = []
        while left:
            await self._turns.next()
            piece = file.read(min(PIECE, left))
            if not piece:
                break
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)

    async def cleared(self) -> bool:
        """Remove all files except the inputs, if there are few and no folders; return whether that was done.

        Raises:
            OSError: If a file cannot be removed.
        """
        await self._turns.next()
        entries = self._entries()
        if len(entries) > folders.QUICK or any(stat.S_ISDIR(entry.facts.st_mode) for entry in entries):
            return False
        for entry in entries:
            if not (entry.name in self._put and self._is_linked(entry.name)):
                os.unlink(entry.name, dir_fd=self._fd)
        for file in self._put.values():
            if file is not None:
                os.unlink(f"{self._inputs}/{file}")  # noqa: PTH108
        return True

    def close(self) -> None:
        """Close the folder; may be called again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _entries(self) -> list[Entry]:
        """All entries of the workspace, up to one more than is allowed."""
        with contextlib.closing(_walk(self._fd, "")) as entries:
            return list(itertools.islice(entries, self._max_files + 1))


def _behind(name: str) -> str:
    """The target of the link to an input."""
    return f"../{folders.INPUTS}/{name}"


def _make(path: str) -> None:
    os.close(os.open(path, INPUT | os.O_CREAT, 0o600))


def _walk(fd: int, prefix: str) -> Generator[Entry]:
    # A duplicate shares its offset with the original, and closing the listing closes the duplicate.
    os.lseek(fd, 0, os.SEEK_SET)
    with os.scandir(fd) as entries:
        for entry in entries:
            with contextlib.ExitStack() as opened:
                try:
                    facts = entry.stat(follow_symlinks=False)
                    inside = None
                    if _to_enter(facts, prefix):
                        inside = _opened(entry.name, fd, facts)
                        opened.callback(os.close, inside)
                except OSError:
                    continue  # deleted in the meantime
                yield Entry(prefix + entry.name, facts)
                if inside is not None:
                    yield from _walk(inside, f"{prefix}{entry.name}/")


def _opened(name: str, fd: int, facts: os.stat_result) -> int:
    """Open a folder in a folder; one that its owner cannot read is made readable, since it counts too."""
    if facts.st_mode & READABLE == READABLE:
        return os.open(name, FOLDER, dir_fd=fd)
    # Through a descriptor: a link that replaces the folder meanwhile must not be followed.
    place = os.open(name, FOLDER | os.O_PATH, dir_fd=fd)
    try:
        Path(f"/proc/self/fd/{place}").chmod(stat.S_IRWXU)
        return os.open(".", FOLDER, dir_fd=place)
    finally:
        os.close(place)


def _to_enter(facts: os.stat_result, prefix: str) -> bool:
    return stat.S_ISDIR(facts.st_mode) and prefix.count("/") < MAX_DEPTH


def check_picture(content: bytes, *, max_pixels: int) -> str:
    """Check a picture's header, in plain Python, before decoding any of it.

    Returns:
        Its format.

    Raises:
        NotShown: If it is not a picture, or exceeds a limit of `vtune.schema.pixels`.
    """
    try:
        return check_head(content, max_pixels=max_pixels).kind
    except Refused as refused:
        raise NotShown(str(refused)) from refused
