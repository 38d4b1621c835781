"""RefCOCO, RefCOCO+ and RefCOCOg: where is the thing that an expression refers to?

Published in two forms: lmms-lab's Parquet folders, with a row for each box and all its expressions, and
VLMEvalKit's single TSV file, with one question per row.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from vtune.data.formats import specimens_places
from vtune.data.formats.building import Found, Options, build_sample
from vtune.data.formats.questions import is_question
from vtune.data.formats.regions import box_of_numbers
from vtune.data.formats.source import Place, files
from vtune.data.formats.table import FORMATS, Format
from vtune.data.formats.values import picture_size, seen_to_open, text_of
from vtune.data.shards import ShardRow, Table, scan_shards
from vtune.data.tsv import TsvRow, scan_tsv
from vtune.errors import DataError
from vtune.schema.box import Box, clamp, proper
from vtune.schema.fields import mistyped, wrong
from vtune.schema.message import IMAGE, Picture
from vtune.schema.sample import Sample
from vtune.verifiers import grounding

SETS: Mapping[str, str] = MappingProxyType(
    {"refcoco": "RefCOCO", "refcocoplus": "RefCOCO+", "refcoco+": "RefCOCO+", "refcocog": "RefCOCOg"}
)
"""Folder name, in lower case -> the set."""
ASKED = "Where in the image is this: {expression}"
"""Our wording; evaluation protocols have their own."""
JUDGED: Mapping[str, object] = MappingProxyType({"space": "pixels", "iou": 0.5, "credit": "whole"})
"""Acc@0.5: one box, counted as correct at IoU 0.5 or more."""
_SPLIT = re.compile(r"(val|testA|testB|test)\b")


def read_refcoco(path: Path, options: Options) -> Iterator[Found]:
    """Parquet of lmms-lab/RefCOCO, RefCOCOplus or RefCOCOg: a sample for each expression, split by split.

    Raises:
        DataError: If the folder or its files do not have the published names.
    """
    name = next(
        (SETS[part.name.lower()] for part in (path, *path.parents) if part.name.lower() in SETS), None
    )
    splits = sorted(
        {match[1] for file, _ in files(path, (".parquet",)) if (match := _SPLIT.match(file.stem))}
    )
    if name is None or not splits:
        raise DataError(
            "neither folder nor file names say which set and split this is",
            where=str(path),
            fix="keep the published names: RefCOCO, RefCOCOplus or RefCOCOg, and data/testA-….parquet",
        )
    for split in splits:
        for number, row in enumerate(scan_shards(path, _table(split))):
            place = Place(path, number, f"{name}_{split}")
            try:
                if isinstance(row, DataError):
                    raise row
                found: list[Sample | DataError] = list(_expressions(row, place))
            except DataError as error:
                found = [error]
            for entry in found:
                yield place, entry


def _table(split: str) -> Table:
    named = {name: name for name in ("question_id", "answer", "bbox")}
    return Table(split=split, columns=named, pictures=("image",))


def _expressions(row: ShardRow, place: Place) -> Iterator[Sample]:
    picture = Picture(data=row.picture)
    seen_to_open("image", picture)
    x, y, width, height = box_of_numbers("bbox", row.values["bbox"])
    box = _inside((x, y, x + width, y + height), picture)
    expressions = row.values["answer"]
    if not isinstance(expressions, list) or not expressions:
        raise mistyped("answer", expressions, "a list of expressions")
    for number, expression in enumerate(expressions):
        text = text_of("answer", expression).strip()
        identity = f"{text_of('question_id', row.values['question_id'])}/{number}"
        yield _sample(place, place.name, identity, ASKED.format(expression=text), (picture,), box, text)


def read_refcoco_tsv(path: Path, options: Options) -> Iterator[Found]:
    """VLMEvalKit's RefCOCO.tsv: eight splits, with boxes as fractions of the picture's sides."""
    for number, row in enumerate(scan_tsv(path, ("question", "answer", "category"))):
        place = Place(path, number, path.stem)
        try:
            yield place, row if isinstance(row, DataError) else _of_tsv(row, place)
        except DataError as error:
            yield place, error


def _of_tsv(row: TsvRow, place: Place) -> Sample:
    name, _, split = row.values["category"].strip().partition(" ")
    if name not in SETS.values() or not _SPLIT.fullmatch(split):
        raise wrong("category", f"unknown split {row.values['category']!r:.60}", "download the file again")
    picture = Picture(data=row.picture)
    seen_to_open("image", picture)
    try:
        shares = box_of_numbers("answer", json.loads(row.values["answer"]))
    except ValueError:
        raise mistyped("answer", row.values["answer"], "a box [x0, y0, x1, y1]") from None
    width, height = picture_size(picture)
    x0, y0, x1, y1 = shares
    box = _inside((x0 * width, y0 * height, x1 * width, y1 * height), picture)
    identity = row.values["index"]
    return _sample(place, f"{name}_{split}", identity, row.values["question"], (picture,), box, "")


def _inside(box: Box, picture: Picture) -> Box:
    """The part of a box that is inside its picture, if that is nearly all of it.

    Raises:
        DataError: If it is not.
    """
    width, height = picture_size(picture)
    part = clamp(box, width, height)
    if not proper(part) or max(abs(a - b) for a, b in zip(box, part, strict=True)) > 1:
        raise wrong(
            "bbox",
            f"the box {[round(side, 2) for side in box]} is not inside {width}x{height} pixels",
            "use the pictures as they are published: the boxes are in their pixels",
        )
    return part


def _sample(
    place: Place,
    source: str,
    identity: str,
    question: str,
    shown: tuple[Picture, ...],
    box: Box,
    expression: str,
) -> Sample:
    width, height = picture_size(shown[0])
    return build_sample(
        place,
        source=source,
        turns=[{"role": "user", "content": f"{IMAGE}\n{question}"}],
        images=shown,
        ability=grounding.NAME,
        identity=f"{source}/{identity}",
        ground_truth=json.dumps([{"label": "", "bbox_2d": list(box)}]),
        answer=expression,
        verifier=grounding.NAME,
        verifier_parm={**JUDGED, "width": width, "height": height},
        evidence=[{"label": expression, "image": 0, "bbox_2d": list(box)}],
        extra={"category": source} | ({"expression": expression} if expression else {}),
    )


FORMATS.add(
    "refcoco",
    Format(
        read_refcoco,
        "Parquet of lmms-lab/RefCOCO, RefCOCOplus or RefCOCOg",
        takes=("tools",),
        own_questions=True,
        shares=lambda options: (is_question,),  # the same columns, which mean something else there
        specimen=specimens_places.refcoco,
    ),
)
FORMATS.add(
    "refcoco_tsv",
    Format(
        read_refcoco_tsv,
        "RefCOCO.tsv of VLMEvalKit",
        takes=("tools",),
        own_questions=True,
        specimen=specimens_places.refcoco_tsv,
    ),
)
