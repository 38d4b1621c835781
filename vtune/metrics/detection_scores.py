"""Scorers for detection as a set: COCO's average precision and OVDEval's NMS-AP, from boxes in replies."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from vtune.errors import DataError
from vtune.metrics.benchmarks import SCORERS, Mark, Scores, mean
from vtune.metrics.detection_interval import counts, interval
from vtune.metrics.detection_set import Answered, Detection, Matches, matches, mean_precision, numbers
from vtune.metrics.ovdeval import suppressed
from vtune.metrics.pseudo_confidence import CONFIDENCES, DEFAULT
from vtune.metrics.scores import cluster
from vtune.schema.annotated import AnnotatedPicture, from_extra
from vtune.verifiers.boxes import LabelledBox
from vtune.verifiers.exact import normalise

SINGLE, MULTIPLE = "single", "multiple"
"""Subsets of COCO: pictures with one annotation, crowds included, and with more (V-Triune, appendix E)."""


@dataclass(frozen=True, slots=True)
class _Looked:
    """A reply's boxes for one picture."""

    picture: AnnotatedPicture
    boxes: tuple[LabelledBox, ...]
    """In pixels of the picture, in the order of the reply; empty if the reply could not be read."""
    cluster: str


@dataclass(frozen=True, slots=True)
class _Set:
    """One reply for each of some pictures."""

    rollout: int
    looked: tuple[_Looked, ...]
    suppresses: bool
    """Whether detections compete for annotations, as in OVDEval."""

    def answered(self, confidence: str) -> list[Answered]:
        """The pictures with the input of pycocotools. Boxes whose label is not a category are left out."""
        known = _categories(self.looked)
        found = [self._answered(one, known, confidence) for one in self.looked]
        return [suppressed(one) for one in found] if self.suppresses else found

    def _answered(self, one: _Looked, known: Mapping[str, int], confidence: str) -> Answered:
        picture, boxes = one.picture, [entry.box for entry in one.boxes]
        key = f"{picture.subset}/{picture.identity}/{self.rollout}"
        sure = CONFIDENCES[confidence](boxes, (picture.width, picture.height), key)
        detections = tuple(
            Detection(known[entry.label], (x0, y0, x1 - x0, y1 - y0), score)
            for entry, (x0, y0, x1, y1), score in zip(one.boxes, boxes, sure, strict=True)
            if entry.label in known
        )
        return Answered(picture, detections)

    def foreign(self) -> int:
        """Number of boxes whose label is not a category of the set."""
        known = _categories(self.looked)
        return sum(entry.label not in known for one in self.looked for entry in one.boxes)


def coco(marks: Sequence[Mark]) -> Scores:
    """COCO's AP over the pictures as one set, with the share of the picture that a box covers for confidence.

    `score` is the AP; the other numbers of COCO's summary, `ap50` to `ar_large`, are given as well.
    `categories` holds the same for pictures with one annotation (`single`) and with more (`multiple`),
    `confidences` the AP by each of `CONFIDENCES`. A number without any annotations has no key. `n`,
    `clusters`, `unreadable` and `unscored` are those of `mean`: an unreadable reply has no boxes, an unscored
    one takes its picture out. `boxes` counts predictions, and `foreign` those whose label is not a category
    of the set, which change nothing. Each rollout forms its own set, and numbers are means over the sets.

    Source: pycocotools; V-Triune, appendix E.

    Raises:
        DataError: If a sample has no annotations, or two samples of a set are about one picture.
    """
    sets = _sets(marks, suppresses=False)
    held = [matches(one.answered(DEFAULT)) for one in sets]
    full = _summary(sets, held)
    parts: Scores = {}
    for name in (SINGLE, MULTIPLE):
        part = [
            _Set(one.rollout, tuple(p for p in one.looked if _subset(p) == name), suppresses=False)
            for one in sets
        ]
        parts[name] = _summary(part, held) | {"n": sum(len(one.looked) for one in part)}
    return (
        full
        | _sure(full, sets, held)
        | _counted(marks, sets)
        | {
            "categories": parts,
            "confidences": _by_confidence({"": sets}),
        }
    )


def ovdeval(marks: Sequence[Mark]) -> Scores:
    """OVDEval's NMS-AP: the mean over its subsets, each scored as a separate set with its own categories.

    `score` is the mean AP after `suppressed`, likewise the other numbers of COCO's summary; `categories` has
    them for each subset. If nothing of a subset was scored, there are no overall numbers, and
    `unscored_parts` names the subset. Otherwise as `coco`.

    Source: the released `eval.py` of OVDEval; equal weights for subsets are ours, as it leaves them open.

    Raises:
        DataError: As `coco` does.
    """
    groups: dict[str, list[Mark]] = defaultdict(list)
    for mark in marks:
        groups[_picture(mark).subset].append(mark)
    subsets = {name: _sets(groups[name], suppresses=True) for name in sorted(groups)}
    held = {name: [matches(one.answered(DEFAULT)) for one in sets] for name, sets in subsets.items()}
    parts = {name: _summary(sets, held[name]) for name, sets in subsets.items()}
    unscored = [name for name, sets in subsets.items() if not sets]
    full: Scores = {"unscored_parts": unscored} if unscored else _means(parts.values())
    everything = [one for sets in subsets.values() for one in sets]
    matched = [match for found in held.values() for match in found]
    return (
        full
        | _sure(full, everything, matched)
        | _counted(marks, everything)
        | {
            "categories": {
                name: part | {"n": len(groups[name]), "boxes": _boxes(subsets[name])}
                for name, part in parts.items()
            },
            "confidences": {} if unscored else _by_confidence(subsets),
        }
    )


def _sets(marks: Sequence[Mark], *, suppresses: bool) -> list[_Set]:
    """The scored rollouts as sets with one rollout per picture; no empty sets."""
    rollouts: dict[str, int] = defaultdict(int)
    found: dict[int, dict[int, _Looked]] = defaultdict(dict)
    for mark in marks:
        number = rollouts[mark.sample_id]
        rollouts[mark.sample_id] += 1
        picture = _picture(mark)
        if mark.score is None:
            continue
        if picture.identity in found[number]:
            raise DataError(
                f"another sample of the set is also about picture {picture.identity}",
                where=f"sample {mark.sample_id!r}",
                fix="score each picture by one sample; check that no data are named twice",
            )
        found[number][picture.identity] = _Looked(picture, mark.boxes or (), cluster(mark))
    return [
        _Set(number, tuple(looked.values()), suppresses) for number, looked in sorted(found.items()) if looked
    ]


def _summary(sets: Sequence[_Set], held: Sequence[Matches]) -> dict[str, float]:
    """Means of COCO's numbers over sets, the AP as `score`; sets may be parts of the matched ones."""
    return _means(
        numbers(match, [each.picture.identity for each in one.looked])
        for one, match in zip(sets, held, strict=True)
    )


def _sure(full: Mapping[str, float], sets: Sequence[_Set], held: Sequence[Matches]) -> Scores:
    """`intervals` with that of `score`; empty if there is no score."""
    if "score" not in full:
        return {}
    clusters = [{each.picture.identity: each.cluster for each in one.looked} for one in sets]
    return {"intervals": {"score": interval(full["score"], [counts(match) for match in held], clusters)}}


def _counted(marks: Sequence[Mark], sets: Sequence[_Set]) -> Scores:
    """Counts of marks and of boxes."""
    known = {name: value for name, value in mean(marks).items() if name not in ("score", "intervals")}
    return known | {"boxes": _boxes(sets), "foreign": sum(one.foreign() for one in sets)}


def _boxes(sets: Sequence[_Set]) -> int:
    return sum(len(one.boxes) for each in sets for one in each.looked)


def _by_confidence(subsets: Mapping[str, Sequence[_Set]]) -> dict[str, float]:
    """Name of a confidence -> AP, averaged over each subset's sets, then over subsets."""
    found = {
        name: _mean(
            _mean(mean_precision(matches(one.answered(name), sizes=False)) for one in sets)
            for sets in subsets.values()
        )
        for name in CONFIDENCES
    }
    return {name: value for name, value in found.items() if value is not None}


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _means(rows: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each number over the rows that have it; `ap` is called `score`."""
    columns: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        for name, value in row.items():
            columns["score" if name == "ap" else name].append(value)
    return {name: fmean(values) for name, values in columns.items()}


def _subset(one: _Looked) -> str:
    return SINGLE if len(one.picture.annotations) == 1 else MULTIPLE


def _categories(looked: Sequence[_Looked]) -> dict[str, int]:
    """Normalised label -> category; of names with the same normalised form, the first one's."""
    known: dict[str, int] = {}
    for one in looked:
        for name, number in one.picture.labels.items():
            known.setdefault(normalise(name), number)
    return known


def _picture(mark: Mark) -> AnnotatedPicture:
    return from_extra(mark.extra, where=f"sample {mark.sample_id!r}")


SCORERS.add("coco", coco)
SCORERS.add("ovdeval", ovdeval)
