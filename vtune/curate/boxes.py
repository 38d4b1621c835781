"""Rules for detection and grounding (V-Triune, appendix A, first stage)."""

import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from pydantic import Field

from vtune.curate.filters import FILTERS, Corpus, FilterPart
from vtune.curate.item import Item, Selected, input_pictures
from vtune.errors import DataError
from vtune.schema.box import Box, area
from vtune.schema.pixels import size_of
from vtune.schema.sample import Sample
from vtune.verifiers import detection
from vtune.verifiers.boxes import LabelledBox, truth_boxes
from vtune.verifiers.spaces import spaces_of

_PLAIN_LABEL = re.compile(r"[^\W\d_]+(?:[ '-][^\W\d_]+)*")


class BoxesPerCategory(Selected):
    """Drops pictures with many things of one kind."""

    at_most: int = Field(default=10, gt=0)
    """Boxes per category (V-Triune, appendix A)."""


class BoxShare(Selected):
    """Drops pictures in which a box covers a large share."""

    at_most: float = Field(default=0.5, gt=0, le=1)
    """Area of a box / area of the picture (V-Triune, appendix A)."""


class PlainLabels(Selected):
    """Drops complex phrases: labels with many words, digits or punctuation. Empty labels pass."""

    at_most: int = Field(default=3, gt=0)
    """Words per label; the number is ours."""


class SinglesToMultis(Selected):
    """Keeps, in each source, samples with one box per category and all others in a fixed proportion.

    The surplus is dropped at random.
    """

    singles: int = Field(default=1, gt=0)
    multis: int = Field(default=2, gt=0)
    """Ratio of singles to multis, 1:2 in V-Triune, appendix A."""


class CategoryTail(Selected):
    """Drops samples with a category that few samples of their source have: the long tail.

    Dropping a sample makes its other categories rarer, so this is repeated until every remaining category is
    in at least this many samples.
    """

    at_least: int = Field(default=10, gt=0)
    """Number of samples; ours."""


def boxes_of(sample: Sample) -> list[LabelledBox]:
    """The boxes of a ground truth in its own space, with labels if all have one.

    Raises:
        DataError: If it has none, or one that is empty or outside its picture.
    """
    try:
        return truth_boxes(sample, labelled=True)
    except DataError:
        return truth_boxes(sample, labelled=False)


def stated_extent(sample: Sample) -> tuple[float, float] | None:
    """Width and height of the space of a sample's boxes; None if only the picture tells."""
    spaces = spaces_of(sample)
    return None if spaces.x_end is None or spaces.y_end is None else (spaces.x_end, spaces.y_end)


def crowded(spec: BoxesPerCategory, item: Item) -> str | None:
    """The reason to drop a sample with too many boxes of one category, or None."""
    counts = Counter(entry.label for entry in boxes_of(item.sample))
    label, most = max(counts.items(), key=lambda pair: (pair[1], pair[0]))
    return f"{most} boxes of {label!r}, at most {spec.at_most} are allowed" if most > spec.at_most else None


def large(spec: BoxShare, item: Item) -> str | None:
    """The reason to drop a sample with a box that is too large, or None."""
    width, height = _extent(item)
    largest = max(boxes_of(item.sample), key=lambda entry: area(entry.box))
    share = area(largest.box) / (width * height)
    if share <= spec.at_most:
        return None
    return f"the box of {largest.label!r} fills {share:.0%} of the picture, at most {spec.at_most:.0%} may be"


def complex_label(spec: PlainLabels, item: Item) -> str | None:
    """The reason to drop a sample with a label that is not a plain name, or None."""
    for entry in boxes_of(item.sample):
        words = len(entry.label.split())
        if words > spec.at_most:
            return f"the label {entry.label!r} has {words} words, at most {spec.at_most} are allowed"
        if entry.label and not _PLAIN_LABEL.fullmatch(entry.label):
            return f"the label {entry.label!r} contains more than words"
    return None


def has_one_each(spec: SinglesToMultis, item: Item) -> bool:
    """Whether every category has one box: V-Triune's single-box samples."""
    labels = [entry.label for entry in boxes_of(item.sample)]
    return len(set(labels)) == len(labels)


def surplus(
    spec: SinglesToMultis, entries: Sequence[tuple[str, bool]], rng: random.Random
) -> Mapping[int, str]:
    """Index -> reason for the samples to drop so that each source has singles and multis in proportion.

    Args:
        spec: The proportion.
        entries: (source, whether it is a single) of each sample.
        rng: Chooses which samples to drop.
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
    """The distinct categories of a sample, sorted."""
    return tuple(sorted({entry.label for entry in boxes_of(item.sample)}))


def in_the_tail(
    spec: CategoryTail, entries: Sequence[tuple[str, tuple[str, ...]]], rng: random.Random
) -> Mapping[int, str]:
    """Index -> reason for the samples with rare categories.

    Args:
        spec: How many samples a category needs.
        entries: (source, categories) of each sample.
        rng: Not used: the result is deterministic.
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


def _extent(item: Item) -> tuple[float, float]:
    stated = stated_extent(item.sample)
    if stated is not None:
        return stated
    pictures = input_pictures(item)
    try:
        return size_of(pictures[0])
    except (IndexError, DataError) as error:
        raise DataError(
            f"the size of the picture is unknown: {error}",
            where=f"sample {item.sample.id!r}",
            fix="write width and height into verifier_parm",
        ) from None


def _row(*boxes: tuple[str, Box]) -> dict[str, str]:
    """A question for labelled boxes, as arguments of `Sample`."""
    truth = [{"label": label, "bbox_2d": box} for label, box in boxes]
    return {"ground_truth": json.dumps(truth), "verifier": detection.NAME}


CUP: Box = (1, 1, 9, 9)
FILTERS.add(
    "boxes_per_category",
    FilterPart(BoxesPerCategory, crowded, keeps=_row(("cup", CUP)), drops=_row(*[("cup", CUP)] * 11)),
)
FILTERS.add(
    "box_share",
    FilterPart(BoxShare, large, keeps=_row(("cup", CUP)), drops=_row(("cup", (0, 0, 60, 40)))),
)
FILTERS.add(
    "plain_labels",
    FilterPart(PlainLabels, complex_label, keeps=_row(("cup", CUP)), drops=_row(("cup no. 2", CUP))),
)
FILTERS.add(
    "singles_to_multis",
    FilterPart(
        SinglesToMultis,
        Corpus(has_one_each, surplus),
        keeps=_row(("cup", CUP), ("cup", CUP)),
        beside=(_row(("cup", CUP), ("cup", CUP)), _row(("cup", CUP))),
        drops=_row(("cup", CUP)),
    ),
)
FILTERS.add(
    "category_tail",
    FilterPart(
        CategoryTail,
        Corpus(categories, in_the_tail),
        keeps=_row(("cup", CUP)),
        beside=(_row(("cup", CUP)),),
        drops=_row(("cup", CUP), ("zebra", CUP)),
        example={"at_least": 2},
    ),
)
