"""`vtune data index`: a corpus of passages, or of pictures with text, as a searchable index."""

import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from vtune.data.formats.source import ENDINGS, Place, read_rows
from vtune.data.tsv import read_table
from vtune.errors import DataError, MissingExtra, RecipeError
from vtune.files.reading import read_bytes
from vtune.files.writing import check_folder_output
from vtune.report.progress import Rows, say
from vtune.runs.data.repeated_ids import Identities, first_twice
from vtune.runs.start import LOCK, locked
from vtune.schema.fields import Row
from vtune.tools.passage import TEXTS, Passage, passage_from
from vtune.tools.passages import NO_SEARCH
from vtune.tools.picture_index import Entry, build_picture_index, load_picture_encoder
from vtune.tools.pictures import PictureEncoder

PICTURE_ENDINGS = (".jpg", ".jpeg", ".png", ".webp")

_SHOWN = 5
"""Maximum number of pictures missing from the metadata that are listed."""

TABLE = ".tsv"
"""File ending of a corpus that is a table of `id`, `text` and `title`, such as DPR's `psgs_w100.tsv`."""

METADATA = "metadata.jsonl"
"""File beside pictures: one {"file_name", "title", "text"} per line, as in Hugging Face's image folders."""


def index_passages(corpus: Path, out: Path) -> dict[str, Any]:
    """Build an index of passages; `out` appears only when complete.

    Args:
        corpus: JSON lines or Parquet with `text` and optionally `id` and `title`, or a folder of such files;
            or a table (`.tsv`) with these columns.
        out: Folder to write; must not exist.

    Returns:
        `kind`, `passages`, `words`, `postings`, `out`, `bytes`.

    Raises:
        RecipeError: If `out` exists.
        DataError: If a row has no text; names file and row.
    """
    try:
        from vtune.tools.bm25_build import build_index
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{error.name} is not installed", fix=NO_SEARCH) from None
    return _built(corpus, out, lambda folder, tick: build_index(passages_of(corpus), folder, tick))


def index_pictures(corpus: Path, out: Path, *, encoder: str | None = None) -> dict[str, Any]:
    """Build an index of pictures; `out` appears only when complete.

    Args:
        corpus: A folder of pictures, with `metadata.jsonl` if they have titles and texts; or JSON lines or
            Parquet with `image` (bytes, or a path relative to the file's folder) and optionally `title` and
            `text`.
        out: Folder to write; must not exist.
        encoder: Folder or hub name of a CLIP or SigLIP model that embeds the pictures, on a GPU if there is
            one; None: they are compared by hash and layout.

    Returns:
        `kind`, `pictures`, `width`, `encoder`, `hash`, `out`, `bytes`.

    Raises:
        RecipeError: If `out` exists.
        DataError: If the encoder cannot be loaded, a picture cannot be read, or its folder has a
            `metadata.jsonl` that does not name it.
    """
    entries = _folder(corpus) if _is_picture_folder(corpus) else _entries(corpus)
    check_new(out, corpus)
    model = None if encoder is None else _picture_encoder(encoder)
    return _built(corpus, out, lambda folder, tick: build_picture_index(entries, folder, tick, encoder=model))


def _picture_encoder(name: str) -> PictureEncoder:
    import torch

    return load_picture_encoder(name, "cuda" if torch.cuda.is_available() else "cpu")


def _built(
    corpus: Path, out: Path, build: Callable[[Path, Callable[[], None]], dict[str, Any]]
) -> dict[str, Any]:
    check_new(out, corpus)
    partial = out.with_name(f".{out.name}.new")
    with locked(partial):
        try:
            _empty(partial)
            with Rows("index") as progress:
                facts = build(partial, progress.advance)
            (partial / LOCK).unlink()
            partial.rename(out)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    return facts | {"out": str(out), "bytes": sum(path.stat().st_size for path in out.iterdir())}


def _empty(folder: Path) -> None:
    """Remove what a killed build left in a locked folder."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != LOCK:
            path.unlink()


def check_new(out: Path, corpus: Path) -> None:
    """Check that an index can be written to a new folder.

    Raises:
        RecipeError: If the folder exists or cannot be written.
    """
    if out.exists():
        raise RecipeError(f"{out} already exists", fix="choose another --out, or remove it")
    check_folder_output(out, inputs=[corpus])


def _rows(corpus: Path, one_of: Collection[str]) -> Iterator[tuple[Place, Row]]:
    for place, row in _table(corpus, one_of) if corpus.suffix == TABLE else read_rows(corpus):
        if isinstance(row, DataError):
            raise _at(place, row)
        yield place, row


def _table(corpus: Path, one_of: Collection[str]) -> Iterator[tuple[Place, Row | DataError]]:
    for number, row in read_table(corpus, one_of):
        yield Place(corpus, number, corpus.stem), row


def passages_of(corpus: Path) -> Iterator[Passage]:
    """The passages of a corpus, one at a time; after the last, warns about repeated ids.

    Raises:
        DataError: If it does not consist of rows, or a row has no text; names file and row.
    """
    files = [corpus] if corpus.is_file() else corpus.rglob("*")
    if corpus.exists() and corpus.suffix != TABLE and not any(path.suffix in ENDINGS for path in files):
        raise DataError(
            f"{corpus} is not a corpus: a {', '.join(ENDINGS)} file, a folder of them, or a table ({TABLE})",
            fix='write documents or passages as JSON lines {"title": …, "text": …}, not compressed; '
            "`vtune data make passages` makes them from a dump of Wikipedia",
        )
    identities = Identities()
    for _, passage in _placed(corpus):
        identities.add(passage.id)
        yield passage
    if repeated := identities.repeated():
        again = ((passage.id, place.where) for place, passage in _placed(corpus))
        if (found := first_twice(again, repeated)) is not None:
            more = f" ({len(repeated)} such ids)" if len(repeated) > 1 else ""
            say(f"warning: {found}{more}: give each passage its own id")


def _placed(corpus: Path) -> Iterator[tuple[Place, Passage]]:
    for place, row in _rows(corpus, TEXTS):
        try:
            yield place, passage_from(row, place.id)
        except DataError as error:
            raise _at(place, error) from None


def _entries(corpus: Path) -> Iterator[Entry]:
    for place, row in _rows(corpus, ("image",)):
        try:
            yield _entry(row, "image", place)
        except DataError as error:
            raise _at(place, error) from None


def _is_picture_folder(corpus: Path) -> bool:
    if not corpus.is_dir() or (corpus / METADATA).is_file():
        return corpus.is_dir()
    here = any(path.suffix.lower() in PICTURE_ENDINGS for path in corpus.iterdir())
    return here or not any(path.suffix in ENDINGS for path in corpus.rglob("*"))


def _pictures(folder: Path) -> list[Path]:
    """All pictures in a folder and its subfolders, sorted."""
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in PICTURE_ENDINGS)


def _folder(corpus: Path) -> Iterable[Entry]:
    there = _pictures(corpus)
    if not (corpus / METADATA).is_file():
        for path in there:
            yield Entry(_read(path), path.stem, "", str(path))
        return
    rows = list(_rows(corpus / METADATA, ("file_name",)))
    named = {corpus / str(row.get("file_name")) for _, row in rows}
    if unnamed := [path for path in there if path not in named]:
        first = ", ".join(str(path.relative_to(corpus)) for path in unnamed[:_SHOWN])
        more = f" and {len(unnamed) - _SHOWN} more" if len(unnamed) > _SHOWN else ""
        raise DataError(
            f"{len(unnamed)} of {len(there)} pictures have no line in {METADATA}: {first}{more}",
            where=str(corpus),
            fix='add {"file_name": …} for each, or move them out of the folder',
        )
    for place, row in rows:
        try:
            yield _entry(row, "file_name", place)
        except DataError as error:
            raise _at(place, error) from None


def _entry(row: Mapping[str, Any], column: str, place: Place) -> Entry:
    value = row.get(column)
    if isinstance(value, Mapping):  # Hugging Face's struct of bytes and path
        value = value.get("bytes") or value.get("path")
    if isinstance(value, str):
        title, data = Path(value).stem, _read(place.file.parent / value)
    elif isinstance(value, bytes):
        title, data = "", value
    else:
        held = ", ".join(key for key in row if row[key] is not None) or "nothing"
        raise DataError(
            f"a row has no picture in `{column}`: it has {held}",
            fix="write a path, or bytes; passages of text are indexed without --pictures",
        )
    title, text = row.get("title", title), row.get("text") or ""
    if not isinstance(title, str) or not isinstance(text, str):
        raise DataError("`title` and `text` must be texts", fix="fix the row")
    return Entry(data, title, text, place.where)


def _read(path: Path) -> bytes:
    try:
        return read_bytes(path)
    except OSError as error:
        raise DataError(
            f"no picture at {path}: {error.strerror}", fix="paths start from the file's folder"
        ) from None


def _at(place: Place, error: DataError) -> DataError:
    where = place.where
    return DataError(error.what, where=where, fix=error.fix)
