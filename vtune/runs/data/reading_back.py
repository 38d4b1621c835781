"""Whether an exported file reads back as what it was made from: a format does not report what it loses."""

import tempfile
from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

from vtune.data.formats.building import Found, Options
from vtune.data.formats.table import FORMATS
from vtune.errors import DataError, VtuneError
from vtune.schema.difference import difference
from vtune.schema.parquet import at_row, read_samples, read_trajectories, with_pictures
from vtune.schema.sample import Sample
from vtune.schema.sample_row import sample_from_row, sample_to_row
from vtune.schema.trajectory import Trajectory
from vtune.schema.trajectory_row import trajectory_from_row, trajectory_to_row
from vtune.uses import broken

LOSSLESS = (
    "write all of it (`vtune.data.formats.own` packs what no column holds), or let `to_row` raise DataError "
    "that names what the format cannot hold (`vtune.schema.difference` says where two records differ)"
)


def check_comes_back(name: str, path: Path, refused: Collection[int | None], there: Path, out: Path) -> None:
    """Read what was written and compare it, row by row, with its source.

    Args:
        name: The format's key in `FORMATS`.
        path: The exported file of samples or traces.
        refused: Numbers of its rows that the format could not hold.
        there: The written file, under its temporary name.
        out: Its final name, whose ending readers rely on.

    Raises:
        DataError: At the first row that differs; names the field.
        BrokenPart: If a custom format's reader fails.
    """
    wrote = _kept(name, path, refused)
    with tempfile.TemporaryDirectory() as folder:
        link = Path(folder) / out.name
        link.symlink_to(there.absolute())
        for pair in zip_longest(wrote, _read(name, link, out)):
            _check_row(name, path, *pair, base=out.parent)


def _read(name: str, link: Path, out: Path) -> Iterator[Found]:
    """What the format reads; exceptions from its reader are attributed to the reader, not to the writing."""
    try:
        yield from FORMATS[name].read(link, Options())
    except DataError as error:
        where = error.where.replace(str(link), str(out))
        raise DataError(
            f"what `{name}` writes cannot be read: {error.what}", where=where, fix=error.fix
        ) from None
    except VtuneError:
        raise
    except Exception as error:
        raise broken(error, (FORMATS.kind, name)) or error from error


def _kept(
    name: str, path: Path, refused: Collection[int | None]
) -> Iterator[tuple[int, Sample | Trajectory]]:
    samples = FORMATS[name].makes == "samples"
    records: Iterator[Sample | Trajectory] = read_samples(path) if samples else read_trajectories(path)
    for number, record in enumerate(records):
        if number not in refused:
            yield number, record


def _check_row(
    name: str, path: Path, wrote: tuple[int, Sample | Trajectory] | None, found: Found | None, *, base: Path
) -> None:
    if wrote is None:
        raise DataError(f"`{name}` reads more rows than were written", where=str(path), fix=LOSSLESS)
    number, record = wrote
    record = with_pictures(record, path.parent)
    back = None if found is None else _imported(found[1], base)
    if back is None:
        lost = "is not among the rows that are read"
    elif isinstance(back, DataError):
        lost = f"cannot be read: {back.what}"
    elif isinstance(record, Sample) and isinstance(back, Sample):
        lost = difference(record, back)
    elif isinstance(record, Trajectory) and isinstance(back, Trajectory):
        lost = difference(_learnt(record), _learnt(back))
    else:
        lost = f"is read as {type(back).__name__}"
    if lost:
        error = DataError(f"what `{name}` writes is not read back unchanged: {lost}", fix=LOSSLESS)
        raise at_row(path, number, error)


def _imported(entry: Sample | Trajectory | DataError, base: Path) -> Sample | Trajectory | DataError:
    """A reader's result as an import would store it: lists as tuples, pictures by their marks.

    Args:
        entry: The reader's result.
        base: The folder that its picture paths are relative to.
    """
    try:
        if isinstance(entry, Sample):
            return with_pictures(sample_from_row(sample_to_row(entry), place=""), base)
        if isinstance(entry, Trajectory):
            return with_pictures(trajectory_from_row(trajectory_to_row(entry)), base)
    except DataError as error:
        return error
    return entry


def _learnt(trace: Trajectory) -> Trajectory:
    """What can be learnt from a trace; other trainers' files cannot store token ids and rewards."""
    return Trajectory(
        sample_id=trace.sample_id,
        source=trace.source,
        messages=trace.messages,
        images=tuple(replace(picture, seen=None) for picture in trace.images),
        calls=tuple(replace(call, span=(0, 0), flags=()) for call in trace.calls),
        answer=trace.answer,
    )
