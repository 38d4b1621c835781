"""Detection scored as a set: one question per picture, with all its annotations for the scorer.

Unlike the format `coco`, which makes tasks to train on, nothing is dropped: crowds and tiny things are scored
as COCO scores them. Boxes are in pixels of the stored picture.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtune.data.coco_scenes import Photo, detection_question, photograph, reason
from vtune.data.formats import specimens_sets
from vtune.data.formats.building import Found, Options, build_sample
from vtune.data.formats.coco import FORMAT_RATIO, is_annotated
from vtune.data.formats.source import Place, read_json
from vtune.data.formats.table import FORMATS, Format
from vtune.errors import DataError
from vtune.schema.annotated import AnnotatedPicture, Annotation, annotation_of, to_extra
from vtune.schema.box import Box, clamp, proper
from vtune.schema.message import IMAGE, Picture
from vtune.schema.sample import Sample
from vtune.verifiers import detection

WHOLE = frozenset({"celebrity", "landmark", "logo"})
"""Subsets of OVDEval whose questions name all of their categories, as in its `eval_glip.py`; the others name
the picture's `text` and `neg_text`."""


@dataclass(frozen=True, slots=True)
class _File:
    """One file of annotations in COCO's layout."""

    path: Path
    images: Path
    entries: Sequence[Mapping[str, Any]]
    """Entries of `images`."""
    names: Mapping[int, str]
    """Category id -> name."""
    annotations: Mapping[int, tuple[Annotation, ...]]
    """Picture id -> its annotations."""


def read_coco_set(path: Path, options: Options) -> Iterator[Found]:
    """COCO's `instances_*.json`: each annotated photograph is asked about its own categories.

    The photographs are in the folder that the caller names; in `val2017` beside `annotations`, where COCO's
    archives unpack; or in `images` beside the file.

    Source: V-Triune, appendix E, which asks about 4,952 of the 5,000 photographs of val2017.
    """
    split = path.stem.removeprefix("instances_")
    places = [path.parent / "images", path.parent / split, path.parent.parent / split]
    found = next((place for place in places if place.is_dir()), places[0])
    file = _opened(path, found if options.images is None else options.images)
    for number, entry in enumerate(file.entries):
        place = Place(path, number, path.stem)
        try:
            annotations = file.annotations.get(_identity(entry), ())
            asked = sorted({one.category for one in annotations})
            if asked:
                yield place, _sample(file, entry, place, "coco", "", asked)
        except DataError as error:
            yield place, error


def read_ovdeval(path: Path, options: Options) -> Iterator[Found]:
    """OVDEval's folder: `annotations/<subset>.json`, with pictures in `images/<subset>`.

    A question names the categories in the picture and hard negatives, in alphabetical order: in file order,
    those in the picture would come first.

    Raises:
        DataError: If there are no annotations.
    """
    files = [path] if path.is_file() else sorted((path / "annotations").glob("*.json"))
    if not files:
        raise DataError(
            f"there is no {path / 'annotations'}/*.json",
            fix="give the folder with `annotations` and `images`",
        )
    for one in files:
        images = one.parent.parent / "images" if options.images is None else options.images
        file, subset = _opened(one, images / one.stem), one.stem
        for number, entry in enumerate(file.entries):
            place = Place(one, number, subset)
            try:
                asked = _asked(file, entry, number) if subset not in WHOLE else list(file.names)
                asked.sort(key=lambda category: file.names[category].casefold())
                yield place, _sample(file, entry, place, f"ovdeval_{subset}", subset, asked)
            except DataError as error:
                yield place, error


def _asked(file: _File, entry: Mapping[str, Any], number: int) -> list[int]:
    """The categories of `text` and `neg_text`."""
    known = {name: category for category, name in file.names.items()}
    lists = [entry.get(key) for key in ("text", "neg_text")]
    texts = [text for one in lists if isinstance(one, list) for text in one]
    if not all(isinstance(one, list) for one in lists) or not texts or any(t not in known for t in texts):
        raise DataError(
            "`text` and `neg_text` are not lists of the file's categories",
            where=f"{file.path}, `images`[{number}]",
            fix="download the file again",
        )
    return list({known[text]: None for text in texts})


def _sample(
    file: _File, entry: Mapping[str, Any], place: Place, source: str, subset: str, asked: Sequence[int]
) -> Sample:
    """The question about one picture.

    Raises:
        DataError: If the picture is missing, damaged or of the wrong size.
    """
    identity = _identity(entry)
    photo = _photo(file, entry, place)
    data = photograph(photo, file.images)
    annotations = file.annotations.get(identity, ())
    # A box that is empty or outside the picture is scored in the set, but nobody could find it.
    boxes = [(one, box) for one in annotations if (box := _box(one, photo)) is not None]
    single = [(one, box) for one, box in boxes if not one.crowd]
    truth = [{"label": file.names[one.category], "bbox_2d": list(box)} for one, box in single or boxes]
    annotated = AnnotatedPicture(
        identity, photo.width, photo.height, subset, {file.names[one]: one for one in asked}, annotations
    )
    parm = {"space": "pixels", "width": photo.width, "height": photo.height}
    return build_sample(
        place,
        source=source,
        turns=[
            {"role": "user", "content": f"{IMAGE}\n{detection_question(file.names[one] for one in asked)}"}
        ],
        images=(Picture(data, photo.file_name),),
        ability=detection.NAME,
        identity=f"{source}/{identity}",
        ground_truth=json.dumps(truth, ensure_ascii=False),
        verifier=detection.NAME,
        verifier_parm=parm if truth else parm | {"may_be_empty": True},
        ratios=(1.0, FORMAT_RATIO, 0.0),
        evidence=[{"label": one["label"], "image": 0, "bbox_2d": one["bbox_2d"]} for one in truth],
        extra={"image_path": photo.file_name} | to_extra(annotated),
    )


def _box(one: Annotation, photo: Photo) -> Box | None:
    """The part of an annotation inside its picture, xyxy; None if that part is empty."""
    x, y, width, height = one.sides
    box = clamp((x, y, x + width, y + height), photo.width, photo.height)
    return box if proper(box) else None


def _opened(path: Path, images: Path) -> _File:
    """A file of annotations that refer to its categories and pictures.

    Raises:
        DataError: If it is missing, has another layout, or contradicts itself: then no set can be scored.
    """
    content = read_json(path)
    at = ""
    try:
        entries = list(content["images"])
        names = {int(entry["id"]): str(entry["name"]) for entry in content["categories"]}
        pictures = {_identity(entry) for entry in entries}
        found: dict[int, list[Annotation]] = defaultdict(list)
        seen: set[int] = set()
        for number, entry in enumerate(content["annotations"]):
            at = f", `annotations`[{number}]"
            one, picture = annotation_of(entry), int(entry["image_id"])
            if one.category not in names or picture not in pictures or one.identity in seen:
                raise ValueError("its picture or category is not in the file, or its id appears twice")
            seen.add(one.identity)
            found[picture].append(one)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"not the layout of COCO instances: {reason(error)}",
            where=f"{path}{at}",
            fix="it needs images, annotations with id, image_id, category_id and bbox, and categories",
        ) from None
    if len(pictures) < len(entries):
        raise DataError("two pictures have the same id", where=str(path), fix="download the file again")
    return _File(path, images, entries, names, {one: tuple(group) for one, group in found.items()})


def _identity(entry: Mapping[str, Any]) -> int:
    return int(entry["id"])


def _photo(file: _File, entry: Mapping[str, Any], place: Place) -> Photo:
    """What the file says about a picture."""
    try:
        return Photo(str(entry["id"]), str(entry["file_name"]), int(entry["width"]), int(entry["height"]))
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"a picture cannot be read: {reason(error)}",
            where=f"{file.path}, `images`[{place.row}]",
            fix="it needs id, file_name, width and height",
        ) from None


FORMATS.add(
    "coco_set",
    Format(
        read_coco_set,
        "instances_*.json of COCO as one set to be scored; its photographs beside it, or given with --images",
        takes=("images", "tools"),
        own_questions=True,
        shares=lambda options: (is_annotated,),
        specimen=specimens_sets.coco_set,
    ),
)
FORMATS.add(
    "ovdeval",
    Format(
        read_ovdeval,
        "folder of OVDEval, with `annotations` and `images`",
        takes=("images", "tools"),
        own_questions=True,
        shares=lambda options: (is_annotated,),
        specimen=specimens_sets.ovdeval,
    ),
)
