"""When two pictures, or two texts, count as the same or nearly the same.

Pictures: imagehash's difference hash of 16 x 16 cells, which says for each cell whether its right neighbour
is brighter. Re-encoding and resizing change few of its 256 bits. It is blind to colour and to small things,
so pictures that differ only in these count as similar, though questions about them may have different
answers. After a crop by more than a hundredth, or a rotation, it sees a different picture; for a plain
picture, or one that nowhere gets brighter to the right, it says nothing. Texts: datasketch's MinHash over
runs of five characters (Broder 1997).
"""

import hashlib
import json
import re
import unicodedata
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import imagehash
import numpy as np

from vtune.curate.item import Item, input_pictures, question
from vtune.environments import DEFAULT, name_of
from vtune.schema.pixels import decode_reduced
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory
from vtune.verifiers import VERIFIERS

CELLS = 16
"""Side of the difference hash in cells; the common value, 8, confuses many charts with each other (ours)."""
BITS = CELLS * CELLS
RUN = 5
"""Characters in a run (ours; Broder, and every tool since, uses words or characters)."""
HASHES = 64
"""Hashes per text; the standard error of an estimated similarity is then at most 0.0625."""
BANDS = 16
"""Parts of a text's hashes; texts that share none are not compared. With similarity 0.9, one pair in 25
million shares none, with 0.7 one in 80."""

_MARKUP = re.compile(
    r"(?m)^[^\S\n]*(?:[-*+\u2022\u25cf\u25e6]|#+)\s+|\\(?=[^\w\s])|(?<![\w*])\*(?P<slanted>\w[^*\n]*)\*(?![\w*])"
)
"""Bullets, headings, Markdown italics, and backslashes before non-letters: `\\(`, `\\%`."""
_MARK = re.compile(
    r"(?P<sense>(?<![^\W\d_]{2})-(?=\s*\d)|(?<!\w)-(?=[^\s-])|(?<=\d)[.:](?=\d)|(?<=\d)!)|\*\*+|[^\w\s]|_"
)
_SENSE = frozenset("*/%#&^\\\u20ac\u00a3\u00a5")
"""Punctuation and currency signs that distinguish questions, as mathematical signs do (2 + 2, 2 < 2)."""


@dataclass(frozen=True, slots=True)
class PictureKey:
    """What is kept of a picture to recognise it."""

    content: bytes
    """First 16 bytes of the SHA-256 of its file."""
    look: int
    """The difference hash, 256 bits; 0, the hash of all plain pictures, says nothing."""


@dataclass(frozen=True, slots=True)
class Key:
    """What is kept of a row to find similar rows."""

    pictures: tuple[PictureKey, ...]
    text: bytes
    """First 16 bytes of the SHA-256 of the normalised question."""
    hashes: bytes
    """Its 64 MinHash values, 32 bits each; empty if similar texts are not needed."""
    answer: bytes = b""
    """First 16 bytes of the right answer's SHA-256; empty for boxes, which change with the picture's size."""


def key_of(item: Item, *, looks: bool, texts: bool) -> Key:
    """The key of a row.

    Args:
        item: The row.
        looks: Whether to compute difference hashes; if not, pictures are not decoded and `look` is 0.
        texts: Whether to compute MinHash values.

    Raises:
        DataError: If a picture cannot be read or, with `looks`, decoded.
    """
    written = normalised(question(item.record)) + _world(item)
    return Key(
        pictures=tuple(
            PictureKey(hashlib.sha256(data).digest()[:16], look_of(data) if looks else 0)
            for data in input_pictures(item)
        ),
        text=hashlib.sha256(written.encode()).digest()[:16],
        hashes=minhash(written) if texts else b"",
        answer=_answer(item),
    )


def _world(item: Item) -> str:
    """Distinguishes worlds with identically worded questions: everything that an environment may read."""
    record = item.record
    if not isinstance(record, Sample) or name_of(record) == DEFAULT:
        return ""
    read = [record.environment, record.ground_truth, record.extra]
    return f"\n{json.dumps(read, sort_keys=True, default=str)}"


def _answer(item: Item) -> bytes:
    if isinstance(item.record, Trajectory):
        truth = item.record.answer or ""
    else:
        verifier = VERIFIERS.get(item.record.verifier)
        truth = "" if verifier is None or verifier.answers_in_boxes else item.record.ground_truth
    plain = " ".join(truth.casefold().split())
    return hashlib.sha256(plain.encode()).digest()[:16] if plain else b""


def look_of(data: bytes) -> int:
    """The difference hash of an encoded picture.

    Raises:
        DataError: If it cannot be decoded.
    """
    return int(str(imagehash.dhash(decode_reduced(data, 8 * CELLS, "L"), CELLS)), 16)


def normalised(text: str) -> str:
    """A text without case, punctuation, markup and spacing; signs with a meaning stay."""
    folded = unicodedata.normalize("NFC", text.casefold()).replace("\u2212", "-")
    return " ".join(_MARK.sub(_kept, _MARKUP.sub(lambda found: found["slanted"] or "", folded)).split())


def _kept(found: re.Match[str]) -> str:
    mark = found[0]
    kind = unicodedata.category(mark) if len(mark) == 1 else ""
    if kind.startswith("M"):  # a vowel sign of Hindi or Thai
        return mark
    return f" {mark} " if found["sense"] or kind in ("Sm", "So") or mark in _SENSE else " "


def minhash(text: str) -> bytes:
    """64 MinHash values of a text's runs of characters, 32 bits each."""
    # Imported late: it loads SciPy, half a second that reading a recipe should not cost.
    from datasketch import MinHash

    runs = {text[start : start + RUN] for start in range(max(1, len(text) - RUN + 1))}
    found = MinHash(num_perm=HASHES)
    found.update_batch([run.encode() for run in runs])
    return bytes(found.hashvalues.tobytes())


def similarity(a: Key, b: Key) -> float:
    """Estimated share of runs that two questions have in common, in [0, 1]; 1 if they are equal."""
    if a.text == b.text:
        return 1.0
    return float(np.mean(np.frombuffer(a.hashes, np.uint32) == np.frombuffer(b.hashes, np.uint32)))


def distance(a: Sequence[PictureKey], b: Sequence[PictureKey]) -> int | None:
    """Bits in which the most different pair of corresponding pictures differs; None if their numbers differ.

    All bits count if one hash says nothing and the files are not the same.
    """
    if len(a) != len(b):
        return None
    return max((_bits(x, y) for x, y in zip(a, b, strict=True)), default=0)


def _bits(a: PictureKey, b: PictureKey) -> int:
    if a.content == b.content:
        return 0
    return (a.look ^ b.look).bit_count() if a.look and b.look else BITS


class Index:
    """Finds candidates among the keys added: a superset of those that are alike.

    Args:
        image_distance: Bits in which two similar pictures may differ; None: only identical files count.
        texts: Whether similar questions count, not only equal ones.
    """

    def __init__(self, *, image_distance: int | None, texts: bool) -> None:
        self._image_distance = image_distance
        self._texts = texts
        self._places: dict[Hashable, list[int]] = defaultdict(list)

    def add(self, number: int, key: Key, *, by: str) -> None:
        """Add a key by each of its `pictures`, or by its `text`."""
        for place in self._marks(key, by):
            self._places[place].append(number)

    def candidates(self, key: Key, *, by: str) -> list[int]:
        """Numbers of keys that may be like this one, in ascending order."""
        return sorted({n for place in self._marks(key, by) for n in self._places.get(place, ())})

    def _marks(self, key: Key, by: str) -> Iterable[Hashable]:
        if by == "text":
            yield key.text
            if self._texts:
                for band in range(BANDS):
                    width = len(key.hashes) // BANDS
                    yield band, key.hashes[band * width : (band + 1) * width]
            return
        for picture in key.pictures:
            yield picture.content
            if self._image_distance is not None and picture.look:
                # If two hashes differ in d bits, at least one of their d + 1 parts is equal.
                yield from _parts(picture.look, self._image_distance + 1)


def _parts(look: int, count: int) -> Iterable[tuple[str, int, int]]:
    edges = [part * BITS // count for part in range(count + 1)]
    for part, (low, high) in enumerate(pairwise(edges)):
        yield "look", part, look >> low & ((1 << (high - low)) - 1)
