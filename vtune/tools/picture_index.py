"""An index of local pictures with texts: which of them resemble this one?"""

import asyncio
import io
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from vtune.errors import DataError, RecipeError
from vtune.models.weights import PROCESSOR
from vtune.tools.observation import encodable
from vtune.tools.passages import Device, IndexEncoder, check_model, model_of, torch_device
from vtune.tools.pictures import Match, PictureEncoder, Vector, decoded, layout, perceptual_hash
from vtune.tools.store import Records, RecordWriter, check_same_encoder, read_manifest, write_manifest

THUMBNAIL = 256
"""Longest side of a match's thumbnail, in pixels; ours."""

HASH = "imagehash.phash"
"""What computes the hashes of an index; others are not comparable."""

HASH_WEIGHT = 0.5
"""Weight of the hash, relative to the layout, in a score; ours."""

MIN_SCORE = 0.75
"""Matches with a lower score are dropped; ours."""

DIGITS = 6
"""Number of digits in a score: single precision has hardly more, and a picture must score 1 with itself."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A picture to index, and what is known about it."""

    data: bytes
    """The encoded picture."""
    title: str
    text: str
    place: str
    """Where it came from, for errors."""


def build_picture_index(
    entries: Iterable[Entry],
    folder: Path,
    tick: Callable[[], None],
    *,
    encoder: PictureEncoder | None = None,
) -> dict[str, Any]:
    """Write an index of pictures into an empty folder, one picture in memory at a time.

    Args:
        entries: In order; ties in score rank in this order.
        folder: Where to write.
        tick: Called after each entry.
        encoder: Embeds the pictures; None: they are compared by hash and layout.

    Returns:
        The manifest: `kind`, `pictures`, `width` of the vectors, `encoder` (its facts, or null) and `hash`.

    Raises:
        DataError: If there is no entry, or one is not a picture.
    """
    hashes: list[np.uint64] = []
    vectors: list[Vector] = []
    with RecordWriter(folder, "entries") as records, RecordWriter(folder, "thumbnails") as thumbnails:
        for entry in entries:
            try:
                picture = decoded(entry.data)
            except DataError as error:
                raise DataError(error.what, where=entry.place, fix=error.fix) from None
            if encoder is None:
                hashes.append(perceptual_hash(picture))
                vectors.append(layout(picture))
            else:
                vectors.append(encoder.picture(picture))
            record = {"title": encodable(entry.title), "text": encodable(entry.text)}
            records.append(json.dumps(record, ensure_ascii=False).encode())
            thumbnails.append(_thumbnail(picture))
            tick()
        if not vectors:
            raise DataError("there is no picture to index", fix="give a folder or a file of pictures")
    if encoder is None:
        np.save(folder / "hashes.npy", np.array(hashes, dtype=np.uint64))
    np.save(folder / "vectors.npy", np.stack(vectors).astype(np.float32 if encoder is None else np.float16))
    facts = {
        "kind": "pictures",
        "pictures": len(vectors),
        "width": len(vectors[0]),
        "encoder": None if encoder is None else dict(encoder.facts),
        "hash": HASH if encoder is None else None,
    }
    write_manifest(folder, facts)
    return facts


def check_pictures(folder: Path, encoder: IndexEncoder | None) -> dict[str, Any]:
    """Check, before a run, that an index and its model exist; returns its manifest.

    Raises:
        DataError: If there is no index, another version built it, or its model is missing or has changed.
        MissingExtra: If a package is not installed.
        RecipeError: If an encoder is named for an index that has none.
    """
    facts = read_manifest(folder, "pictures")
    if "encoder" not in facts or facts["hash"] not in (HASH, None):
        raise DataError(f"the index in {folder} was built by another version", fix="build it again")
    if facts["encoder"] is not None:
        check_model(folder, facts, encoder, beside=PROCESSOR)
    elif encoder is not None:
        raise RecipeError(
            f"the index in {folder} was built without a model",
            fix="take encoder out, or build it again: vtune data index … --pictures --encoder MODEL",
        )
    return facts


class PictureIndex:
    """An existing index.

    A score is 1 for the same picture. If a model embedded the pictures, it is the cosine of their vectors;
    otherwise half the share of equal bits of the hashes plus half the cosine of the layouts.

    Args:
        folder: Folder of the index.
        min_score: Matches with a lower score are dropped.
        encoder: Where the model that built it is now, and its device; None: as the manifest says, on the CPU.

    Raises:
        DataError: If the folder contains no complete picture index, or its model is missing or has changed.
        MissingExtra: If a package is not installed.
        RecipeError: If an encoder is named for an index that has none.
    """

    def __init__(
        self, folder: Path, *, min_score: float = MIN_SCORE, encoder: IndexEncoder | None = None
    ) -> None:
        facts = check_pictures(folder, encoder)
        self._records = Records(folder, "entries")
        self._thumbnails = Records(folder, "thumbnails")
        self._min_score = min_score
        self.pictures: int = facts["pictures"]
        try:
            vectors = np.load(folder / "vectors.npy", mmap_mode="r")
            hashes = None if facts["hash"] is None else np.load(folder / "hashes.npy", mmap_mode="r")
        except (OSError, ValueError) as error:
            raise DataError(
                f"not a complete index: {error}", where=str(folder), fix="build it again"
            ) from None
        if len(self._records) != self.pictures or vectors.shape != (self.pictures, facts["width"]):
            raise DataError(f"the files in {folder} do not belong together", fix="build it again")
        self._alike = (
            _Embedded(folder, vectors, facts, encoder) if hashes is None else _Plain(hashes, vectors)
        )

    async def search(self, picture: bytes, top_k: int) -> list[Match]:
        """The most similar pictures, ties in order of the index."""
        return await asyncio.to_thread(self.find, picture, top_k)

    def find(self, picture: bytes, top_k: int) -> list[Match]:
        """The same, synchronously."""
        return [match for _, match in self.find_numbered(picture, top_k)]

    def find_numbered(self, picture: bytes, top_k: int) -> list[tuple[int, Match]]:
        """The same, each after its index."""
        numbers, scores = self._alike.nearest(decoded(picture), top_k)
        return [
            (n, Match(**json.loads(self._records[n]), score=score, thumbnail=self._thumbnails[n]))
            for n, score in zip(numbers.tolist(), scores.astype(float).round(DIGITS).tolist(), strict=True)
            if score >= self._min_score
        ]

    async def aclose(self) -> None:
        """Close the files."""
        self._records.close()
        self._thumbnails.close()


_Found = tuple[NDArray[Any], NDArray[Any]]
"""Indices of pictures, and their scores, best first."""


class _Plain:
    """Compares pictures by hash and layout."""

    def __init__(self, hashes: NDArray[np.uint64], layouts: Vector) -> None:
        self._hashes, self._layouts = hashes, layouts

    def nearest(self, picture: Image.Image, top_k: int) -> _Found:
        differing = np.bitwise_count(self._hashes ^ perceptual_hash(picture))
        alike = HASH_WEIGHT * (1 - differing / 64) + (1 - HASH_WEIGHT) * (self._layouts @ layout(picture))
        best = np.argsort(-alike, kind="stable")[:top_k]
        return best, alike[best]


class _Embedded:
    """Compares a model's vectors of all pictures, with usearch."""

    def __init__(
        self, folder: Path, vectors: NDArray[np.float16], facts: dict[str, Any], encoder: IndexEncoder | None
    ) -> None:
        from vtune.tools.dense import Exact

        self._encoder = load_picture_encoder(
            model_of(facts, encoder), "cpu" if encoder is None else encoder.device
        )
        check_same_encoder(folder, facts["encoder"], self._encoder.facts)
        self._vectors = Exact(np.asarray(vectors), 0, "cos")

    def nearest(self, picture: Image.Image, top_k: int) -> _Found:
        numbers, scores = self._vectors.nearest(self._encoder.picture(picture).astype(np.float16), top_k)
        order = np.lexsort((numbers, -scores))
        return numbers[order], scores[order]


def load_picture_encoder(model: str, device: Device) -> PictureEncoder:
    """An encoder for pictures.

    Raises:
        DataError: If it cannot be loaded.
        RecipeError: If there is no such device.
    """
    from vtune.models.picture_encoder import PictureModel

    return PictureModel(model, device=torch_device(device))


def _thumbnail(picture: Image.Image) -> bytes:
    small = picture.copy()
    small.thumbnail((THUMBNAIL, THUMBNAIL))
    out = io.BytesIO()
    small.save(out, "JPEG", quality=90)
    return out.getvalue()
