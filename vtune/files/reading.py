"""The one place that opens a file named by a person, a recipe or a row of data.

Only regular files are read: a FIFO would wait for ever, a device never ends. What is read as a whole has a
limit, so that a sparse file of a terabyte is a message. Every problem is an OSError with its reason in
`strerror`; whoever asked says in its own words what was wanted and what to do.
"""

import errno
import os
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

MAX_PICTURE = 256 * 2**20
"""Bytes of an encoded picture, ours: a PNG of 8000 x 8000 pixels has about 130 MB."""
MAX_LINE = 256 * 2**20
"""Bytes of a line of JSON or TSV, ours: it holds a picture in base64."""
MAX_TEXT = 16 * 2**20
"""Bytes of a file that people write: recipes, code, tokens (ours)."""
MAX_DOCUMENT = 2 * 2**30
"""Bytes of a file that a program wrote and that is read as a whole; COCO's largest has 450 MB (ours)."""

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def kind_of(mode: int) -> str | None:
    """What a file is that is not a regular one, by its `st_mode`; None for a regular file."""
    return _KINDS.get(stat.S_IFMT(mode))


def open_input(path: Path) -> BufferedReader:
    """Open a regular file to read its bytes.

    Raises:
        OSError: If it cannot be opened, is not a regular file, or has a name that no file can have.
    """
    try:
        # Without waiting for the other end, should this be a FIFO.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError:  # a NUL, or half of a surrogate pair
        raise OSError(errno.EINVAL, "no file can have this name", str(path)) from None
    kind = kind_of(os.fstat(descriptor).st_mode)
    if kind is not None:
        os.close(descriptor)
        raise OSError(errno.EINVAL, f"it is {kind}, not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def why_unread(error: OSError | UnicodeDecodeError) -> str:
    """Why a file cannot be read, for a message that names the file itself."""
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 (byte {error.start})"
    return error.strerror or str(error)


def check_input(path: Path) -> None:
    """Check that a file can be opened, for a library that opens it by its name.

    Raises:
        OSError: As `open_input`.
    """
    open_input(path).close()


def read_bytes(path: Path, *, limit: int = MAX_PICTURE) -> bytes:
    """All of a regular file.

    Args:
        path: The file.
        limit: The most bytes that it may have.

    Raises:
        OSError: As `open_input`, or if it is larger.
    """
    with open_input(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        # Room is made for all that is asked for: a file that does not grow is not given that of the largest.
        content = stream.read(size + 1) if size <= limit else b""
        if len(content) > size:
            content += stream.read(limit + 1 - len(content))
        if len(content) > limit or os.fstat(stream.fileno()).st_size > limit:
            raise OSError(errno.EFBIG, f"it is larger than {limit >> 20} MiB", str(path))
        return content


def read_text(path: Path, *, limit: int = MAX_TEXT) -> str:
    """All of a regular file of UTF-8, with or without a byte order mark.

    Raises:
        OSError: As `read_bytes`.
        UnicodeDecodeError: If it is in another encoding.
    """
    return read_bytes(path, limit=limit).decode("utf-8-sig").replace("\r\n", "\n")


def whole_lines(path: Path, *, repair: bool) -> list[bytes]:
    """The lines of a log of JSON objects, without their ends; a last one that a kill cut short is left out.

    They are bytes, as a kill may cut within a character, and whoever parses a line can say which is wrong.
    A last line without an end that is not the beginning of an object is no work of a kill: it is returned.

    Args:
        path: Of the log.
        repair: Whether what a kill has left is cut off in the file as well.

    Raises:
        OSError: As `read_bytes`.
    """
    data = read_bytes(path, limit=MAX_DOCUMENT)
    size = data.rfind(b"\n") + 1
    lines, rest = data[:size].split(b"\n")[:-1], data[size:]
    if rest[:1] not in (b"", b"{", b"\0"):
        return [*lines, rest]
    if repair and rest:
        with path.open("r+b") as file:
            file.truncate(size)
    return lines


def read_lines(stream: BinaryIO, *, limit: int = MAX_LINE) -> Iterator[bytes]:
    """The lines of a stream, with their ends, one in memory at a time.

    Raises:
        OSError: If a line is longer than `limit` bytes.
    """
    while line := stream.readline(limit + 1):
        if len(line) > limit:
            raise OSError(errno.EFBIG, f"a line is longer than {limit >> 20} MiB")
        yield line
