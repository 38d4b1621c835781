"""V* and HR-Bench in their published form, with plain pictures: a grey ground and a coloured target."""

import base64
import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from PIL import Image, ImageDraw

from vtune.errors import DataError

T = TypeVar("T")

COLOURS = ("red", "green", "blue", "yellow")
VSTAR_REQUEST = "Answer with the option's letter from the given choices directly."
CATEGORIES = ("direct_attributes", "relative_position")


def raising(entries: Iterable[T | DataError]) -> Iterator[T]:
    """The entries of a scan up to the first that is an error, which is raised."""
    for entry in entries:
        if isinstance(entry, DataError):
            raise entry
        yield entry


def picture(number: int, size: tuple[int, int], box: tuple[int, int, int, int], kind: str = "JPEG") -> bytes:
    """A different picture for each number; the box (x, y, width, height) has the number's colour."""
    image = Image.new("RGB", size, (90 + number % 60, 90, 90))
    x, y, width, height = box
    ImageDraw.Draw(image).rectangle((x, y, x + width - 1, y + height - 1), fill=COLOURS[number % 4])
    out = io.BytesIO()
    image.save(out, kind, **({"compress_level": 1} if kind == "PNG" else {"quality": 85}))
    return out.getvalue()


def make_vstar(
    folder: Path, count: int, size: tuple[int, int], box: tuple[int, int, int, int], kind: str = "JPEG"
) -> Path:
    """Write `count` questions, alternating categories; the first option of an annotation is the right one.

    `test_questions.jsonl` has the official order of options: rotated by the number of the question.
    """
    rows = []
    for number in range(count):
        category = CATEGORIES[number % 2]
        here = folder / category
        here.mkdir(parents=True, exist_ok=True)
        stem = f"sa_{number:04d}"
        (here / f"{stem}.{'jpg' if kind == 'JPEG' else 'png'}").write_bytes(picture(number, size, box, kind))
        right = COLOURS[number % 4]
        wrong = [colour for colour in COLOURS if colour != right]
        options = [right, *wrong] if number % 2 == 0 else [right, wrong[0]]
        note = {
            "target_object": ["sign"],
            "bbox": [list(box)],
            "question": "What is the colour of the sign?",
            "options": options,
        }
        (here / f"{stem}.json").write_text(json.dumps(note))
        by = number // 2 % len(options)
        turned = [*options[by:], *options[:by]]
        listed = "\n".join(f"({letter}) {option}" for letter, option in zip("ABCD", turned, strict=False))
        rows.append(
            {
                "image": f"{category}/{stem}.{'jpg' if kind == 'JPEG' else 'png'}",
                "text": f"{note['question']}\n{listed}\n{VSTAR_REQUEST}",
                "category": category,
                "question_id": number,
                "label": "ABCD"[turned.index(right)],
            }
        )
    (folder / "test_questions.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder


def write_tsv(path: Path, rows: Sequence[dict[str, str]]) -> Path:
    """Write a TSV file as pandas does."""
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return path


def hrbench_rows(pictures: Sequence[bytes]) -> list[dict[str, str]]:
    """Four rows per picture, with the options rotated; the pictures alternate between the categories."""
    rows = []
    for number, data in enumerate(pictures):
        right = COLOURS[number % 4]
        options = [right, *(colour for colour in COLOURS if colour != right)]
        for cycle in range(4):
            turned = options[cycle:] + options[:cycle]
            rows.append(
                {
                    "index": str(len(rows)),
                    "image": base64.b64encode(data).decode(),
                    "question": "What is the colour of the sign?",
                    **dict(zip("ABCD", turned, strict=True)),
                    "answer": "ABCD"[turned.index(right)],
                    "category": ("single", "cross")[number % 2],
                    "cycle_category": str(cycle),
                }
            )
    return rows
