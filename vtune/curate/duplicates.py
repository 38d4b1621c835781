"""Duplicates within the data, and overlap with benchmarks."""

import io
import random
from collections.abc import Mapping, Sequence
from typing import Literal, Self

from PIL import Image
from pydantic import Field, model_validator

from vtune.curate.filters import FILTERS, Corpus, FilterPart, Like
from vtune.curate.item import Item, Selected
from vtune.curate.likeness import BITS, Index, Key, distance, key_of, similarity
from vtune.schema.message import Picture


class Duplicates(Selected):
    """Drops every row that resembles an earlier one that is kept.

    With `match: both`, the same question about merely similar pictures must also have the same answer: two
    pictures may differ only in a small thing or a colour (`likeness`).
    """

    match: Literal["both", "images", "text"] = "both"
    """What has to match: pictures and question, all pictures, or the question."""
    image_distance: int | None = Field(default=4, ge=0, lt=BITS)
    """Bits of 256 in which the difference hashes of two similar pictures may differ; null: identical files
    only.
    """
    text_similarity: float = Field(default=1.0, gt=0, le=1)
    """Share of runs of five characters that similar questions have in common; 1: the same words."""


class Contamination(Selected):
    """Drops rows that show a picture of a benchmark or, without pictures, ask one of its questions."""

    suites: Literal["all"] | tuple[str, ...] = "all"
    """Names or paths of suites; `all` means the built-in ones. A suite that is not available is reported and
    skipped."""
    data: tuple[str, ...] = ()
    """Further Parquet files that must not overlap, e.g. other held-out samples."""
    image_distance: int | None = Field(default=8, ge=0, lt=BITS)
    """As in `duplicates`; null: identical files only."""
    text_similarity: float | None = Field(default=None, gt=0, le=1)
    """As in `duplicates`, for questions regardless of their pictures; null: only if neither has a picture,
    and then only the same words."""

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not self.suites and not self.data:
            raise ValueError("name suites or data to keep apart from")
        return self


def duplicate_key(spec: Duplicates, item: Item) -> Key:
    """The key by which a row is compared with others."""
    looks = spec.image_distance is not None and spec.match != "text"
    return key_of(item, looks=looks, texts=spec.text_similarity < 1 and spec.match != "images")


def repeated(spec: Duplicates, entries: Sequence[tuple[str, Key]], rng: random.Random) -> Mapping[int, Like]:
    """Index -> reason for the rows that are like an earlier one.

    A row without pictures never matches by pictures; with `match: both` it is compared only by its question.

    Args:
        spec: What has to match.
        entries: (source, key) of each row, in the order of the data.
        rng: Not used: the first one stays.
    """
    index = Index(image_distance=spec.image_distance, texts=spec.text_similarity < 1)
    dropped: dict[int, Like] = {}
    for number, (_, key) in enumerate(entries):
        by = "text" if spec.match == "text" or not key.pictures else "pictures"
        if spec.match == "images" and not key.pictures:
            continue
        for other in index.candidates(key, by=by):
            why = _alike(spec, entries[other][1], key)
            if why is not None:
                dropped[number] = Like(f"{why} as", other)
                break
        else:
            index.add(number, key, by=by)
    return dropped


def benchmark_key(spec: Contamination, item: Item) -> Key:
    """The key by which a row is looked up in benchmarks."""
    return key_of(item, looks=spec.image_distance is not None, texts=spec.text_similarity is not None)


class Benchmarks:
    """The keys of benchmarks, indexed for lookup.

    Args:
        spec: When a row counts as contaminated.
        entries: The key of each of their rows.
    """

    def __init__(self, spec: Contamination, entries: Sequence[Key]) -> None:
        self._spec = spec
        self._entries = entries
        self._index = Index(image_distance=spec.image_distance, texts=spec.text_similarity is not None)
        for number, key in enumerate(entries):
            self._index.add(number, key, by="pictures")
            self._index.add(number, key, by="text")

    def contaminated(self, entries: Sequence[Key]) -> Mapping[int, Like]:
        """Index -> reason for rows that a benchmark also contains, with the index of the benchmark's row."""
        found = {number: self._reason(key) for number, key in enumerate(entries)}
        return {number: why for number, why in found.items() if why is not None}

    def _reason(self, key: Key) -> Like | None:
        for number in self._index.candidates(key, by="pictures"):
            theirs = self._entries[number]
            for picture in key.pictures:
                bits = min(
                    (bits for other in theirs.pictures if (bits := distance([picture], [other])) is not None),
                    default=BITS,
                )
                if bits <= (self._spec.image_distance or 0) and self._near(picture.content, theirs):
                    return Like(f"shows a picture ({bits} of {BITS} bits differ) of", number)
        for number in self._index.candidates(key, by="text"):
            theirs = self._entries[number]
            if self._spec.text_similarity is None:
                if key.text == theirs.text and not key.pictures and not theirs.pictures:
                    return Like("asks the question of", number)
            elif (same := similarity(key, theirs)) >= self._spec.text_similarity:
                return Like(f"asks a question (similarity {same:.2f}) of", number)
        return None

    def _near(self, content: bytes, theirs: Key) -> bool:
        """Whether a hash match counts; without difference hashes all are 0, so only identical files count."""
        if self._spec.image_distance is not None:
            return True
        return any(picture.content == content for picture in theirs.pictures)


def _alike(spec: Duplicates, a: Key, b: Key) -> str | None:
    """In what two rows are alike; None if they are not alike enough."""
    parts = []
    if spec.match != "text" and (a.pictures or b.pictures):
        if spec.image_distance is None:
            if [p.content for p in a.pictures] != [p.content for p in b.pictures]:
                return None
            parts.append("the same picture")
        else:
            bits = distance(a.pictures, b.pictures)
            if bits is None or bits > spec.image_distance:
                return None
            if spec.match == "both" and _answer_differs(a, b):
                return None
            parts.append(f"nearly the same picture ({bits} of {BITS} bits differ)")
    if spec.match != "images":
        same = similarity(a, b) if spec.text_similarity < 1 else float(a.text == b.text)
        if same < spec.text_similarity:
            return None
        parts.append("the same question" if same == 1 else f"nearly the same question ({same:.2f})")
    return " and ".join(parts)


def _answer_differs(a: Key, b: Key) -> bool:
    """Whether different files have different answers; for the same file, a second answer is a mistake."""
    if [picture.content for picture in a.pictures] == [picture.content for picture in b.pictures]:
        return False
    return bool(a.answer and b.answer) and a.answer != b.answer


def _round(side: int) -> Picture:
    """A picture of a given size that gets brighter outwards from its centre."""
    out = io.BytesIO()
    Image.radial_gradient("L").resize((side, side)).save(out, "PNG")
    return Picture(out.getvalue())


ROUND, SMALLER = _round(128), _round(100)
"""A picture and nearly the same one, for testing the filters."""

FILTERS.add(
    "duplicates",
    FilterPart(
        Duplicates,
        Corpus(duplicate_key, repeated),
        looks_at=("samples", "traces"),
        beside=({"images": (ROUND,)},),
        drops={"images": (SMALLER,)},
    ),
)
