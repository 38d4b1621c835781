"""An index of local pictures with texts: which of them look like this one?"""

import asyncio
import io
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from vtune.errors import DataError
from vtune.tools.observation import encodable
from vtune.tools.pictures import Embed, Match, Vector, decoded, layout, perceptual_hash
from vtune.tools.store import Records, RecordWriter, read_manifest, write_manifest

THUMBNAIL = 256
"""Longest side of what is shown of a match, in pixels; ours."""

HASH_WEIGHT = 0.5
"""Share of the hash, against the embedding, in a score; ours."""

MIN_SCORE = 0.75
"""What scores less is not found; ours."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A picture to be found, and what is known about it."""

    data: bytes
    """Encoded."""
    title: str
    text: str
    place: str
    """Where it came from, for errors."""


def build_picture_index(
    entries: Iterable[Entry], folder: Path, tick: Callable[[], None], *, embed: Embed = layout
) -> dict[str, Any]:
    """Write an index of pictures into an empty folder, one picture in memory at a time.

    Args:
        entries: In the order in which equal scores rank.
        folder: Where to write.
        tick: Called after each entry.
        embed: Turns a picture into a vector of length 1.

    Returns:
        The manifest: `kind`, `pictures`, `width` of the vectors.

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
            hashes.append(perceptual_hash(picture))
            vectors.append(embed(picture))
            record = {"title": encodable(entry.title), "text": encodable(entry.text)}
            records.append(json.dumps(record, ensure_ascii=False).encode())
            thumbnails.append(_thumbnail(picture))
            tick()
        if not hashes:
            raise DataError("there is no picture to index", fix="give a folder or a file of pictures")
    np.save(folder / "hashes.npy", np.array(hashes, dtype=np.uint64))
    np.save(folder / "vectors.npy", np.stack(vectors))
    facts = {"kind": "pictures", "pictures": len(hashes), "width": len(vectors[0])}
    write_manifest(folder, facts)
    return facts


class PictureIndex:
    """An index that was built.

    A score is half the share of equal bits of the hashes and half the cosine of the embeddings: 1 for the
    same picture.

    Args:
        folder: That was built.
        min_score: What scores less is not found.
        embed: As it was built with.

    Raises:
        DataError: If the folder holds no complete index of pictures, or another embedding made it.
    """

    def __init__(self, folder: Path, *, min_score: float = MIN_SCORE, embed: Embed = layout) -> None:
        facts = read_manifest(folder, "pictures")
        self._records = Records(folder, "entries")
        self._thumbnails = Records(folder, "thumbnails")
        try:
            self._hashes = np.load(folder / "hashes.npy", mmap_mode="r")
            self._vectors = np.load(folder / "vectors.npy", mmap_mode="r")
        except (OSError, ValueError) as error:
            raise DataError(
                f"not a complete index: {error}", where=str(folder), fix="build it again"
            ) from None
        self._embed = embed
        self._min_score = min_score
        self.pictures: int = facts["pictures"]
        width = len(embed(Image.new("RGB", (32, 32))))
        if len(self._records) != self.pictures or self._vectors.shape != (self.pictures, width):
            raise DataError(
                f"the files in {folder} do not belong together, or to this embedding", fix="build it again"
            )

    async def search(self, picture: bytes, top_k: int) -> list[Match]:
        """The most alike, of equal ones the earlier first."""
        return await asyncio.to_thread(self.find, picture, top_k)

    def find(self, picture: bytes, top_k: int) -> list[Match]:
        """The same, at once."""
        image = decoded(picture)
        differing = np.bitwise_count(self._hashes ^ perceptual_hash(image))
        scores = HASH_WEIGHT * (1 - differing / 64) + (1 - HASH_WEIGHT) * (self._vectors @ self._embed(image))
        best = np.argsort(-scores, kind="stable")[:top_k]
        return [
            Match(**json.loads(self._records[n]), score=float(scores[n]), thumbnail=self._thumbnails[n])
            for n in map(int, best)
            if scores[n] >= self._min_score
        ]

    async def aclose(self) -> None:
        """Close its files."""
        self._records.close()
        self._thumbnails.close()


def _thumbnail(picture: Image.Image) -> bytes:
    small = picture.copy()
    small.thumbnail((THUMBNAIL, THUMBNAIL))
    out = io.BytesIO()
    small.save(out, "JPEG", quality=90)
    return out.getvalue()
