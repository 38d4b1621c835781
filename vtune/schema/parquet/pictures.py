"""The bytes of the pictures that a Parquet file holds or names."""

from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from vtune.errors import DataError
from vtune.files.reading import read_bytes
from vtune.schema.message import Picture
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory

T = TypeVar("T", bound=Sample | Trajectory)


def load_picture(picture: Picture, base: Path) -> bytes:
    """The encoded bytes of a picture.

    Args:
        picture: Bytes, or a path; if it has both, the bytes are used.
        base: The folder of the Parquet file, for relative paths.

    Raises:
        DataError: If the picture's file cannot be read.
    """
    if picture.data is not None:
        return picture.data
    if picture.path is None:
        raise DataError("a picture has neither bytes nor a path", fix="give one of them")
    path = base / picture.path
    try:
        return read_bytes(path)
    except OSError as error:
        raise DataError(
            f"no picture at {path}: {error.strerror}",
            fix="paths are relative to the folder of the Parquet file",
        ) from None


def with_pictures(record: T, base: Path) -> T:
    """The record with the bytes of its pictures, which a file may hold by their paths alone.

    Args:
        record: As read from a file.
        base: The file's folder.

    Raises:
        DataError: If a picture's file cannot be read.
    """
    images = tuple(replace(picture, data=load_picture(picture, base)) for picture in record.images)
    return replace(record, images=images)
