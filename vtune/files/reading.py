"""The one place that opens a file named by a person, a recipe or a row of data.

Only regular files are read: a FIFO would block forever, a device never ends. Whole files are read up to a
limit, so that a sparse file of a terabyte gives an error message. Every problem is an OSError with its reason
in `strerror`; the caller adds what was wanted and what to do.
"""

import errno
import os
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

MAX_PICTURE = 256 * 2**20
"""Limit on the bytes of an encoded picture; ours: a PNG of 8000 x 8000 pixels has about 130 MB."""
MAX_LINE = 256 * 2**20
"""Limit on the bytes of a line of JSON or TSV; ours: it may contain a picture in base64."""
MAX_TEXT = 16 * 2**20
"""Limit on the bytes of a file written by people: recipes, code, tokens (ours)."""
MAX_DOCUMENT = 2 * 2**30
"""Limit on the bytes of a file written by a program and read as a whole; COCO's largest has 450 MB (ours)."""

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def kind_of(mode: int) -> str | None:
    """The kind of a file that is not regular, from its `st_mode`; None for a regular file."""
    return _KINDS.get(stat.S_IFMT(mode))


def open_input(path: Path) -> BufferedReader:
    """Open a regular file to read its bytes.

    Raises:
        OSError: If it cannot be opened, is not a regular file, or its name is not a valid file name.
    """
    try:
        # Non-blocking, in case it is a FIFO.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except ValueError:  # a NUL, or half a surrogate pair
        raise OSError(errno.EINVAL, "no file can have this name", str(path)) from None
    kind = kind_of(os.fstat(descriptor).st_mode)
    if kind is not None:
        os.close(descriptor)
        raise OSError(errno.EINVAL, f"it is {kind}, not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def why_unread(error: OSError | UnicodeDecodeError) -> str:
    """Why a file cannot be read, for a message that already names the file."""
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 (byte {error.start})"
    return error.strerror or str(error)


def check_input(path: Path) -> None:
    """Check that a file can be opened, for a library that opens it by name.

    Raises:
        OSError: As in `open_input`.
    """
    open_input(path).close()


def read_bytes(path: Path, *, limit: int = MAX_PICTURE) -> bytes:
    """The whole content of a regular file.

    Args:
        path: The file.
        limit: Maximum size in bytes.

    Raises:
        OSError: As in `open_input`, or if it is larger.
    """
    with open_input(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        # read() allocates the requested size: ask for the limit only if the file has grown in the meantime.
        content = stream.read(size + 1) if size <= limit else b""
        if len(content) > size:
            content += stream.read(limit + 1 - len(content))
        if len(content) > limit or os.fstat(stream.fileno()).st_size > limit:
            raise OSError(errno.EFBIG, f"it is larger than {limit >> 20} MiB", str(path))
        return content


def read_text(path: Path, *, limit: int = MAX_TEXT) -> str:
    """The whole content of a regular UTF-8 file, with or without a byte order mark.

    Raises:
        OSError: As in `read_bytes`.
        UnicodeDecodeError: If it is in another encoding.
    """
    return read_bytes(path, limit=limit).decode("utf-8-sig").replace("\r\n", "\n")


def whole_lines(path: Path, *, repair: bool) -> list[bytes]:
    """The lines of a log of JSON objects, without line breaks; a last line truncated by a kill is left out.

    Lines are bytes, because a kill may cut within a character, and so that the parser can say which line is
    wrong. A last line without a line break that does not begin like an object was not cut by a kill: it is
    returned.

    Args:
        path: The log.
        repair: Whether to remove the truncated line from the file as well.

    Raises:
        OSError: As in `read_bytes`.
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
    """The lines of a stream, with line breaks, one in memory at a time.

    Raises:
        OSError: If a line is longer than `limit` bytes.
    """
    while line := stream.readline(limit + 1):
        if len(line) > limit:
            raise OSError(errno.EFBIG, f"a line is longer than {limit >> 20} MiB")
        yield line
