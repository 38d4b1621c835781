"""V* and HR-Bench, with the readers that evaluation uses."""

from collections.abc import Iterator
from pathlib import Path

from vtune.data.formats.building import Found, Options
from vtune.data.formats.source import Place
from vtune.data.formats.values import seen_to_open
from vtune.data.hrbench import scan_hrbench
from vtune.data.vstar import scan_vstar
from vtune.errors import DataError
from vtune.schema.sample import Sample


def read_vstar_rows(path: Path, options: Options) -> Iterator[Found]:
    """V*: its folder, an entry for each annotation file (place without a row), or its TSV, an entry a row."""
    for number, (file, entry) in enumerate(scan_vstar(path)):
        yield Place(file, number if path.is_file() else None, path.stem), _opened(entry)


def read_hrbench_rows(path: Path, options: Options) -> Iterator[Found]:
    """HR-Bench: one entry a row; a row at a time is in memory."""
    for number, entry in enumerate(scan_hrbench(path)):
        yield Place(path, number, path.stem), _opened(entry)


def _opened(entry: Sample | DataError) -> Sample | DataError:
    """The entry, if its pictures can be opened."""
    if isinstance(entry, Sample):
        try:
            for picture in entry.images:
                seen_to_open("image", picture)
        except DataError as error:
            return error
    return entry
