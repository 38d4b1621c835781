"""A session's workspace as the trainer reads it: through one open folder, never through a link.

The session is stopped while this happens, or has run no code but what is contained (`contained.py`), and
nothing that it says is needed: not which files there are, not what they hold.
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
"""Folders in folders that are looked into; nesting deeper breaks the quota."""

PIECE = 1 << 20
"""Bytes that are read or written before the event loop may turn: a fraction of a millisecond. Ours."""

Stamp = tuple[int, int, int]
"""Inode, time of change (ns), size: another version of a file has another stamp."""
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READABLE = stat.S_IRUSR | stat.S_IXUSR
"""What its owner needs to look into a folder."""
PIXELS = ".rgb"
"""Ends the names of files of pixels."""
INPUT = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Entry(NamedTuple):
    """A file, a folder or anything else in a workspace."""

    name: str
    """Relative to the workspace."""
    facts: os.stat_result
    """Of itself, not of what a link points to."""


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
        """The names of the inputs, in order, and of their files of pixels."""

    @classmethod
    def of(cls, session: str, turns: Turns, *, max_files: int, max_bytes: int) -> Self:
        """The workspace in a session's folder; its files are read and written in these turns of the loop."""
        return cls(Path(session) / folders.WORKSPACE, turns, max_files=max_files, max_bytes=max_bytes)

    async def put(self, name: str, content: bytes) -> None:
        """Put a file where the session can only read it, over that of an earlier session.

        To remove and to make files is slow on some disks: ext4 without a journal passes over each that was
        removed in the last minutes.
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
        """Let `link` (`PixelFiles.link`) put the pixels of an input beside it, or not."""
        await self._turns.next()
        file = f"{name}{PIXELS}"
        if link(content, f"{self._inputs}/{file}"):
            self._put[name] = file

    def pixels(self) -> list[str | None]:
        """By input, the file of its pixels as the session reaches it, None where there is not one."""
        return [file and _behind(file) for file in self._put.values()]

    def link_inputs(self, names: Sequence[str]) -> None:
        """Make the inputs reachable under their names in the workspace, whatever has taken their place.

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
        """Whether an input can be reached under its name."""
        try:
            return os.readlink(name, dir_fd=self._fd) == _behind(name)
        except OSError:
            return False

    def set_aside(self) -> str:
        """Begin with an empty workspace, of a session that has ended.

        Returns:
            Where its files are now, beside the folders of sessions: to remove many takes long.
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
        """Check that nobody has removed the files under the code, which would be blamed for it.

        Raises:
            ServiceError: If somebody has removed the workspace or an input; the session itself cannot.
        """
        inputs = all((self._inputs / name).exists() for name in self._put)
        if os.fstat(self._fd).st_nlink == 0 or not inputs:
            raise ServiceError("the session's files were removed from outside")

    def over_quota(self, hidden: int = 0) -> str:
        """Which quota is exceeded, empty if none; `hidden` bytes are in files that are in no folder."""
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
        """What a call has left.

        Args:
            written: Pictures in the order in which the session says that it wrote them. It decides between
                files of one tick of the clock, and notices a file that was written again within one.

        Returns:
            Names of the pictures that are new or changed since the last look, in order of creation, and
            which quota is exceeded, empty if none.
        """
        entries = self._entries()
        order = {name: number for number, name in enumerate(written)}
        found = []
        for name, facts in entries:
            # A second name for a file can only be that of a file elsewhere.
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
        """The first `left` bytes of a file, all where it has no more."""
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
        """Whether all files are gone but the inputs: only where there are few, and no folders.

        Raises:
            OSError: If that is not possible.
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
        """Let go of the folder; harmless when repeated."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _entries(self) -> list[Entry]:
        """All that is in the workspace, at most one more than is allowed."""
        with contextlib.closing(_walk(self._fd, "")) as entries:
            return list(itertools.islice(entries, self._max_files + 1))


def _behind(name: str) -> str:
    """What the link to an input says."""
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
                    continue  # gone in between
                yield Entry(prefix + entry.name, facts)
                if inside is not None:
                    yield from _walk(inside, f"{prefix}{entry.name}/")


def _opened(name: str, fd: int, facts: os.stat_result) -> int:
    """A folder in a folder, opened; one that is closed to its owner is opened up, for it counts as well."""
    if facts.st_mode & READABLE == READABLE:
        return os.open(name, FOLDER, dir_fd=fd)
    # By its descriptor: a link that takes its place meanwhile must not be followed.
    place = os.open(name, FOLDER | os.O_PATH, dir_fd=fd)
    try:
        Path(f"/proc/self/fd/{place}").chmod(stat.S_IRWXU)
        return os.open(".", FOLDER, dir_fd=place)
    finally:
        os.close(place)


def _to_enter(facts: os.stat_result, prefix: str) -> bool:
    return stat.S_ISDIR(facts.st_mode) and prefix.count("/") < MAX_DEPTH


def check_picture(content: bytes, *, max_pixels: int) -> str:
    """Look at a picture's head, in plain Python, before anything of it is decoded.

    Returns:
        Its format.

    Raises:
        NotShown: If it is not a picture, or breaks a limit of `vtune.schema.pixels`.
    """
    try:
        return check_head(content, max_pixels=max_pixels).kind
    except Refused as refused:
        raise NotShown(str(refused)) from refused
