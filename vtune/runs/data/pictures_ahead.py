"""Reads records' pictures ahead in threads, while earlier records are processed."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from vtune.errors import DataError, VtuneError
from vtune.schema.decode import UNDECODABLE, is_turned
from vtune.schema.message import Picture
from vtune.schema.parquet import load_picture
from vtune.schema.pixels import REMEDY, Refused, examine

E = TypeVar("E")

THREADS = 8
"""Maximum; ours. Each thread may hold a decoded picture of 64 million pixels."""
AHEAD = 4
"""Maximum number of records per thread whose pictures are opened in advance; ours."""
BYTES = 64 << 20
"""Maximum size of encoded pictures that wait for their record's turn; a single record may exceed it; ours."""

JPEG_END = b"\xff\xd9"
TAIL = 4096
"""Bytes at the end of a JPEG in which to look for its end marker: cameras append a few."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts about a picture that could be opened."""

    size: tuple[int, int]
    """Width and height in pixels."""
    turned: bool
    """Whether EXIF rotates it: people see it rotated, a policy sees it as stored."""


class Opening:
    """The pictures of one record."""

    def __init__(self, coming: Sequence[Future[Facts]]) -> None:
        self._coming = coming

    def facts(self) -> list[Facts]:
        """Facts about each picture, in order.

        Raises:
            DataError: If a picture is missing or cannot be opened; of several, it says which one.
        """
        found = []
        for number, one in enumerate(self._coming, start=1):
            try:
                found.append(one.result())
            except DataError as error:
                which = f"picture {number} of {len(self._coming)} of the row: "
                named = f"{which if len(self._coming) > 1 else ''}{error.what}"
                raise DataError(named, where=error.where, fix=error.fix) from None
        return found


def opening(
    records: Iterable[E], pictures: Callable[[E], Sequence[Picture]], base: Path
) -> Iterator[tuple[E, Opening]]:
    """Each record with its pictures, which threads open in advance.

    Checking data spends most of its time decoding, during which other threads can run.

    Args:
        records: Records with pictures; if reading them raises an error, earlier records are yielded first.
        pictures: Returns the pictures of a record.
        base: The folder that their paths are relative to.
    """
    threads = min(THREADS, len(os.sched_getaffinity(0)))
    waiting: deque[tuple[E, Opening]] = deque()
    failed: Exception | None = None
    source, held = iter(records), 0
    with ThreadPoolExecutor(threads, thread_name_prefix="vtune-opening") as pool:
        try:
            while True:
                try:
                    record = next(source)
                except StopIteration:
                    break
                except (VtuneError, OSError) as error:
                    failed = error
                    break
                coming = [pool.submit(open_whole, picture, base) for picture in pictures(record)]
                held += _size(pictures(record))
                waiting.append((record, Opening(coming)))
                while len(waiting) > AHEAD * threads or (held > BYTES and len(waiting) > 1):
                    held -= _size(pictures(waiting[0][0]))
                    yield waiting.popleft()
            while waiting:
                yield waiting.popleft()
        except BaseException:
            pool.shutdown(cancel_futures=True)  # the rest is not needed
            raise
    if failed is not None:
        raise failed


def _size(pictures: Sequence[Picture]) -> int:
    """Size of their encoded bytes in memory; files are only read when a thread gets to them."""
    return sum(len(picture.data or b"") for picture in pictures)


def open_whole(picture: Picture, base: Path) -> Facts:
    """The facts about an encoded picture, after decoding all of it.

    A header and an end marker say nothing about the data between them, and a picture that cannot be shown to
    the policy ends a run. A JPEG is decoded at an eighth of its size, which reads all of its data in less
    time.

    Raises:
        DataError: If it is missing or cannot be opened.
    """
    content = load_picture(picture, base)
    name = picture.path or f"{len(content)} bytes"
    try:
        with examine(content) as image:
            size = image.size
            if image.format == "JPEG" and JPEG_END not in content[-TAIL:]:
                raise OSError("it is cut short")
            if image.format == "JPEG":
                image.draft(image.mode, (size[0] // 8, size[1] // 8))
            image.load()
    except Refused as refused:
        raise DataError(f"a picture cannot be opened ({name}): {refused}", fix=REMEDY) from None
    except UNDECODABLE as error:
        raise DataError(f"a picture cannot be opened ({name}): {error}", fix=REMEDY) from None
    return Facts(size, is_turned(content))
