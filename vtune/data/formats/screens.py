"""ScreenSpot-Pro: where to click on large screenshots of professional software (likaixin/ScreenSpot-Pro)."""

import json
from collections.abc import Iterator
from pathlib import Path

from vtune.data.folders import within
from vtune.data.formats import specimens_places
from vtune.data.formats.building import Found, Options, build_sample, each
from vtune.data.formats.regions import box_of_numbers
from vtune.data.formats.source import Place, read_rows
from vtune.data.formats.table import FORMATS, Format
from vtune.data.formats.values import needed, picture_size, pictures, text_of
from vtune.errors import DataError
from vtune.schema.box import proper
from vtune.schema.fields import Row, mistyped, wrong
from vtune.schema.message import IMAGE
from vtune.schema.sample import Sample
from vtune.verifiers import grounding, point_in_box

SOURCE = "screenspot_pro"
ASKED = "Where in the screenshot does one click to do this: {instruction}"
"""Our wording; evaluation protocols have their own."""


def read_screenspot_pro(path: Path, options: Options) -> Iterator[Found]:
    """Its folder, `annotations/*.json` with pictures in `images`, or one of the files.

    Raises:
        DataError: If there are no annotations.
    """
    notes = path / "annotations"
    if path.is_dir() and not notes.is_dir():
        raise DataError(
            f"there is no folder {notes}", fix="give the folder with `annotations` and `images`, or one file"
        )
    file = path if path.is_file() else notes

    def convert(row: Row, place: Place) -> Sample:
        return _sample(
            row, place, place.file.parent.parent / "images" if options.images is None else options.images
        )

    return each(read_rows(file), convert)


def _sample(row: Row, place: Place, images: Path) -> Sample:
    name = text_of("img_filename", needed(row, "img_filename"))
    shown = pictures("img_filename", str(within(images, name)), images)
    width, height = size = picture_size(shown[0])
    if row.get("img_size") not in (None, [width, height]):
        raise wrong(
            "img_size",
            f"the picture is {width}x{height} and the file says {row['img_size']!r:.40}",
            "use the pictures as they are published: the boxes are in their pixels",
        )
    instruction = text_of("instruction", needed(row, "instruction")).strip()
    if not instruction:
        raise mistyped("instruction", None, "an instruction")
    box = _box(row, size)
    kept = ("application", "platform", "instruction_cn")
    return build_sample(
        place,
        source=SOURCE,
        turns=[{"role": "user", "content": f"{IMAGE}\n{ASKED.format(instruction=instruction)}"}],
        images=shown,
        ability=grounding.NAME,
        identity=f"{SOURCE}/{text_of('id', needed(row, 'id'))}",
        ground_truth=json.dumps([{"label": "", "bbox_2d": box}]),
        answer=instruction,
        verifier=point_in_box.NAME,
        verifier_parm={"space": "pixels", "width": width, "height": height},
        evidence=[{"label": instruction, "image": 0, "bbox_2d": box}],
        extra={name: row[name] for name in kept if row.get(name) is not None}
        | {
            "instruction": instruction,
            "category": text_of("group", needed(row, "group")),
            "l2-category": text_of("ui_type", needed(row, "ui_type")),
        },
    )


def _box(row: Row, size: tuple[int, int]) -> list[float]:
    """Xyxy in pixels; -1 stands for 0, as VLMEvalKit reads it.

    Raises:
        DataError: If it is not a box inside the picture.
    """
    corners = box_of_numbers("bbox", row.get("bbox"))
    x0, y0, x1, y1 = (0.0 if side == -1 else float(side) for side in corners)
    if not proper((x0, y0, x1, y1)) or min(x0, y0) < 0 or x1 > size[0] or y1 > size[1]:
        raise wrong(
            "bbox",
            f"{row['bbox']!r:.60} is not [x0, y0, x1, y1] inside {size[0]}x{size[1]} pixels",
            "download the file again",
        )
    return [x0, y0, x1, y1]


FORMATS.add(
    "screenspot_pro",
    Format(
        read_screenspot_pro,
        "folder of ScreenSpot-Pro, with `annotations` and `images`",
        takes=("images", "tools"),
        own_questions=True,
        specimen=specimens_places.screenspot_pro,
    ),
)
