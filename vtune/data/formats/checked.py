"""The rows of a user's own data format, checked to be what a format yields."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from vtune.data.formats.building import Found, Options
from vtune.data.formats.source import Place
from vtune.data.formats.table import FORMATS, Format
from vtune.errors import DataError, VtuneError
from vtune.parts import OURS
from vtune.schema.message import Message, Picture
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory
from vtune.uses import broken, defined, ill_made

YIELD = "yield `place, Sample(…)`, a Trajectory or a DataError for each row"
AS_ENTRY = "a format that yields the error, `yield place, DataError(…)`, goes on with the next row"
"""The remedy if a format raises an error about one row."""
TYPES: Mapping[str, type] = {
    "id": str,
    "source": str,
    "ground_truth": str,
    "verifier": str,
    "environment": str,
    "verifier_parm": Mapping,
    "extra": Mapping,
}
"""Field of a sample -> its type."""
SEVERAL: Mapping[str, type] = {"prompt": Message, "images": Picture, "tools": str}
"""The same for fields that are tuples: the type of what they hold."""


def rows_of(layout: Format, path: Path, options: Options) -> Iterator[Found]:
    """What a format reads from a file.

    Raises:
        BrokenPart: If a user's own format fails, yields anything but rows, or a sample has a field of another
            type; names the row, and the line of the format's function.
        DataError: If a user's own format finds nothing to read in the file; names the file.
    """
    name = next(
        (name for name in FORMATS if name not in OURS[FORMATS.kind] and FORMATS[name] is layout), None
    )
    if name is None:
        yield from layout.read(path, options)
        return
    for place, entry in _read(name, layout, path, options):
        if not isinstance(entry, Sample | Trajectory | DataError):
            raise _wrong(name, layout, f"it yields {entry!r:.60} ({place.where})", YIELD)
        if isinstance(entry, Sample) and (wrong := _mistyped(entry)):
            what, fix = wrong
            raise _wrong(name, layout, f"{what} ({place.where})", fix)
        yield place, entry


def _read(name: str, layout: Format, path: Path, options: Options) -> Iterator[tuple[Place, object]]:
    """The places and entries of a user's own format.

    A DataError that it raises after its first entry is an entry for the rest of the file.
    """
    number = 0
    try:
        found: object = layout.read(path, options)
        if not isinstance(found, Iterable):
            what = f"`{layout.read.__name__}` returns {type(found).__name__}, not rows"
            raise _wrong(name, layout, what, YIELD)
        for one in found:
            if not isinstance(one, tuple) or len(one) != 2 or not isinstance(one[0], Place):
                raise _wrong(name, layout, f"it yields {one!r:.60} (entry {number} of {path})", YIELD)
            yield one
            number += 1
    except DataError as error:
        where = error.where if str(path) in error.where else ", ".join(filter(None, (str(path), error.where)))
        if not number:
            raise DataError(error.what, where=where, fix=error.fix) from None
        after = f"{number} {'entry' if number == 1 else 'entries'}"
        what = f"{error.what} (raised after {after}: the rest of the file is not read)"
        yield Place(path, None, path.stem), DataError(what, where=where, fix=f"{error.fix}; {AS_ENTRY}")
    except VtuneError:
        raise
    except (Exception, SystemExit) as error:
        failed = broken(error, (FORMATS.kind, name))
        if failed is None:
            raise
        failed.what += f" (entry {number} of {path})"
        raise failed from error


def _mistyped(sample: Sample) -> tuple[str, str] | None:
    """The field of a sample that is of another type, and the remedy; None if there is none."""
    for name, kind in TYPES.items():
        value = getattr(sample, name)
        if not isinstance(value, kind):
            text = "a text, as `str(…)`" if kind is str else "a dict"
            return f"`{name}` of a sample is {value!r:.60}", f"give {text}"
    for name, kind in SEVERAL.items():
        value = getattr(sample, name)
        if not isinstance(value, tuple | list) or not all(isinstance(one, kind) for one in value):
            what = "texts" if kind is str else f"{kind.__name__}(…)"
            return f"`{name}` of a sample is {value!r:.60}", f"give a tuple of {what}"
    return None


def _wrong(name: str, layout: Format, what: str, fix: str) -> Exception:
    return ill_made((FORMATS.kind, name), what, fix, defined(layout.read))
