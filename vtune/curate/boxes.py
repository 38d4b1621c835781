"""Rules for detection and grounding (V-Triune, appendix A, first stage)."""

import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Literal

from PIL import Image
from pydantic import Field

from vtune.curate.item import Item, Selected, input_pictures
from vtune.errors import DataError
from vtune.schema.box import Box, area, proper
from vtune.schema.decode import UNDECODABLE
from vtune.schema.sample import Sample

_ANSWER = re.compile(r"<answer>(.*)</answer>", re.DOTALL)
_PLAIN_LABEL = re.compile(r"[^\W\d_]+(?:[ '-][^\W\d_]+)*")
_RELATIVE = 1000
"""Width and height of every picture in the space `relative_1000` (V-Triune, after Qwen2.5-VL)."""


class BoxesPerCategory(Selected):
    """Drops pictures with many things of one kind."""

    filter: Literal["boxes_per_category"]
    at_most: int = Field(gt=0)


class BoxShare(Selected):
    """Drops pictures with a box that fills much of them."""

    filter: Literal["box_share"]
    at_most: float = Field(gt=0, le=1)
    """Area of a box / area of the picture."""


class PlainLabels(Selected):
    """Drops complex phrases: labels with many words, digits or punctuation."""

    filter: Literal["plain_labels"]
    at_most: int = Field(gt=0)
    """Words."""


class SinglesToMultis(Selected):
    """Keeps, in each source, samples with one box a category and all others in a fixed proportion.

    Whichever are too many are dropped at random.
    """

    filter: Literal["singles_to_multis"]
    singles: int = Field(gt=0)
    multis: int = Field(gt=0)


class CategoryTail(Selected):
    """Drops samples with a category that few samples of their source have: the long tail.

    A dropped sample makes its other categories rarer, so this goes on until every category that is left is
    in at least so many samples.
    """

    filter: Literal["category_tail"]
    at_least: int = Field(gt=0)
    """Samples."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """One box of a ground truth."""

    label: str
    box: Box
    """xyxy in the space that the sample states."""


def labelled_boxes(sample: Sample) -> tuple[Labelled, ...]:
    """The boxes of a ground truth: a JSON list of `{"label", "bbox_2d"}`, with or without `<answer>` tags.

    V-Triune's published files write it with single quotes; that is read, too.

    Raises:
        DataError: If it is anything else.
    """
    text = sample.ground_truth.strip()
    tagged = _ANSWER.fullmatch(text)
    if tagged is not None:
        text = tagged[1].strip()
    try:
        rows = _loads(text)
        found = tuple(Labelled(str(row.get("label") or ""), _box(row["bbox_2d"])) for row in rows)
    except (ValueError, TypeError, KeyError, AttributeError):
        found = ()
    if not found or not all(proper(entry.box) for entry in found):
        raise DataError(
            "the ground truth is no list of boxes",
            where=f"sample {sample.id!r}",
            fix='write [{"label": "dog", "bbox_2d": [x0, y0, x1, y1]}]',
        )
    return found


def crowded(spec: BoxesPerCategory, item: Item) -> str | None:
    """The reason to drop a sample with too many boxes of one category."""
    counts = Counter(entry.label for entry in labelled_boxes(item.sample))
    label, most = max(counts.items(), key=lambda pair: (pair[1], pair[0]))
    return f"{most} boxes of {label!r}, at most {spec.at_most} are allowed" if most > spec.at_most else None


def large(spec: BoxShare, item: Item) -> str | None:
    """The reason to drop a sample with a box that is too large."""
    width, height = _extent(item)
    largest = max(labelled_boxes(item.sample), key=lambda entry: area(entry.box))
    share = area(largest.box) / (width * height)
    if share <= spec.at_most:
        return None
    return f"the box of {largest.label!r} fills {share:.0%} of the picture, at most {spec.at_most:.0%} may be"


def complex_label(spec: PlainLabels, item: Item) -> str | None:
    """The reason to drop a sample with a label that is no plain name."""
    for entry in labelled_boxes(item.sample):
        words = len(entry.label.split())
        if words > spec.at_most:
            return f"the label {entry.label!r} has {words} words, at most {spec.at_most} are allowed"
        if not _PLAIN_LABEL.fullmatch(entry.label.strip()):
            return f"the label {entry.label!r} is not words alone"
    return None


def has_one_each(spec: SinglesToMultis, item: Item) -> bool:
    """Whether every category has one box: V-Triune's single-box samples."""
    labels = [entry.label for entry in labelled_boxes(item.sample)]
    return len(set(labels)) == len(labels)


def surplus(
    spec: SinglesToMultis, entries: Sequence[tuple[str, bool]], rng: random.Random
) -> Mapping[int, str]:
    """Index -> reason of what has to go so that each source holds singles and multis in proportion.

    Args:
        spec: The proportion.
        entries: (source, whether it is a single) of each sample.
        rng: Chooses who goes.
    """
    kinds: dict[str, dict[bool, list[int]]] = defaultdict(lambda: {True: [], False: []})
    for index, (source, single) in enumerate(entries):
        kinds[source][single].append(index)
    dropped: dict[int, str] = {}
    for source in sorted(kinds):
        singles, multis = kinds[source][True], kinds[source][False]
        parts = min(len(singles) // spec.singles, len(multis) // spec.multis)
        for name, members, wanted in (
            ("single", singles, parts * spec.singles),
            ("multi", multis, parts * spec.multis),
        ):
            for index in rng.sample(members, len(members) - wanted):
                dropped[index] = (
                    f"a {name}-box sample too many for {spec.singles}:{spec.multis} "
                    f"({len(singles)} single, {len(multis)} multi)"
                )
    return dropped


def categories(spec: CategoryTail, item: Item) -> tuple[str, ...]:
    """The categories of a sample, each once."""
    return tuple(sorted({entry.label for entry in labelled_boxes(item.sample)}))


def in_the_tail(
    spec: CategoryTail, entries: Sequence[tuple[str, tuple[str, ...]]], rng: random.Random
) -> Mapping[int, str]:
    """Index -> reason of the samples with rare categories.

    Args:
        spec: How many samples a category needs.
        entries: (source, categories) of each sample.
        rng: Not used: nothing is left to chance.
    """
    left = dict(enumerate(entries))
    dropped: dict[int, str] = {}
    while True:
        counts = Counter((source, label) for source, labels in left.values() for label in labels)
        rare = {key: count for key, count in counts.items() if count < spec.at_least}
        if not rare:
            return dropped
        for index, (source, labels) in list(left.items()):
            label = next((label for label in labels if (source, label) in rare), None)
            if label is not None:
                count = rare[source, label]
                dropped[index] = f"the category {label!r} is in {count} samples, fewer than {spec.at_least}"
                del left[index]


def stated_extent(sample: Sample) -> tuple[float, float] | None:
    """Width and height of the space that the boxes of a sample are in, None where only the picture tells.

    Both the project's `space` and V-Triune's `det_verifier_normalized` are read.
    """
    parm = sample.verifier_parm
    if parm.get("space") == "relative_1000" or parm.get("det_verifier_normalized"):
        return _RELATIVE, _RELATIVE
    width, height = parm.get("width"), parm.get("height")
    return (width, height) if width and height else None


def _extent(item: Item) -> tuple[float, float]:
    stated = stated_extent(item.sample)
    if stated is not None:
        return stated
    pictures = input_pictures(item)
    try:
        with Image.open(BytesIO(pictures[0])) as image:
            return image.size
    except (IndexError, *UNDECODABLE) as error:
        raise DataError(
            f"nobody knows how large the picture is: {error}",
            where=f"sample {item.sample.id!r}",
            fix="write width and height into verifier_parm",
        ) from None


def _loads(text: str) -> list[dict[str, Any]]:
    try:
        rows = json.loads(text)
    except ValueError:
        rows = json.loads(text.replace("'", '"'))
    return rows if isinstance(rows, list) else [rows]


def _box(sides: Any) -> Box:
    x0, y0, x1, y1 = (float(side) for side in sides)
    return x0, y0, x1, y1
