"""A picture with all its annotations, by which detection is scored as a set over many pictures."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vtune.errors import DataError

KEY = "annotated"
"""Key in a sample's `extra`."""

Sides = tuple[float, float, float, float]
"""(x, y, width, height) in pixels of the stored picture, as COCO writes boxes."""


@dataclass(frozen=True, slots=True)
class Annotation:
    """One box of the ground truth, as published."""

    identity: int
    category: int
    sides: Sides
    area: float
    """In square pixels; in COCO that of the mask, which makes an object small, medium or large."""
    crowd: bool
    """It may be found any number of times, including none."""


@dataclass(frozen=True, slots=True)
class AnnotatedPicture:
    """A picture, the categories that were asked for, and all annotations, whatever their size."""

    identity: int
    """`id` in the published file; breaks ties between pictures, as in pycocotools."""
    width: int
    height: int
    subset: str
    """The part of the benchmark that it belongs to."""
    labels: Mapping[str, int]
    """Name of each requested category -> its id."""
    annotations: tuple[Annotation, ...]


def to_extra(picture: AnnotatedPicture) -> dict[str, Any]:
    """The entry of a sample's `extra`."""
    return {
        KEY: {
            "image_id": picture.identity,
            "width": picture.width,
            "height": picture.height,
            "subset": picture.subset,
            "categories": [{"name": name, "id": number} for name, number in picture.labels.items()],
            "annotations": [
                {
                    "id": one.identity,
                    "category_id": one.category,
                    "bbox": list(one.sides),
                    "area": one.area,
                    "iscrowd": int(one.crowd),
                }
                for one in picture.annotations
            ],
        }
    }


def from_extra(extra: Mapping[str, Any], *, where: str) -> AnnotatedPicture:
    """The picture that `to_extra` wrote.

    Args:
        extra: The `extra` of a sample.
        where: The sample, for errors.

    Raises:
        DataError: If there is none, or part of it is missing or of the wrong type.
    """
    try:
        found = extra[KEY]
        annotations = tuple(annotation_of(entry) for entry in found["annotations"])
        return AnnotatedPicture(
            identity=int(found["image_id"]),
            width=int(found["width"]),
            height=int(found["height"]),
            subset=str(found["subset"]),
            labels={str(entry["name"]): int(entry["id"]) for entry in found["categories"]},
            annotations=annotations,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"it has no annotations that a set could be scored by: {type(error).__name__} {error}",
            where=where,
            fix=f"fill in `extra_info.{KEY}` as the formats `coco_set` and `ovdeval` do, or score with "
            "`scorer: mean`",
        ) from None


def annotation_of(entry: Mapping[str, Any]) -> Annotation:
    """An annotation in COCO's format.

    If `area` is missing, it is that of the box; if `iscrowd` is, 0.

    Raises:
        KeyError, TypeError, ValueError: If the entry is not in this format.
    """
    x, y, width, height = map(float, entry["bbox"])
    area = entry.get("area")
    if not (abs(x) < 1e9 and abs(y) < 1e9 and 0 <= width < 1e9 and 0 <= height < 1e9):  # also catches NaN
        raise ValueError(f"bbox is {entry['bbox']!r:.60}")
    return Annotation(
        identity=int(entry["id"]),
        category=int(entry["category_id"]),
        sides=(x, y, width, height),
        area=width * height if area is None else float(area),
        crowd=bool(entry.get("iscrowd")),
    )
