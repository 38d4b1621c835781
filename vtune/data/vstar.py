"""V* Bench: small things in large photographs (craigwu/vstar_bench)."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from vtune.data.options import listing, multiple_choice
from vtune.data.tsv import question_of, scan_tsv
from vtune.errors import DataError
from vtune.files.json_text import parse_json
from vtune.files.reading import read_bytes, read_text
from vtune.schema.box import clamp, proper
from vtune.schema.message import Picture
from vtune.schema.pixels import size_of
from vtune.schema.sample import Evidence, Sample
from vtune.verifiers import choice

SOURCE = "vstar"
"""The same name as in the data of CodeV and DeepEyes."""
CATEGORIES = ("direct_attributes", "relative_position")
"""The folders with the 191 questions; the published data set has two more, which are not among them."""
PICTURES = (".jpg", ".jpeg", ".png")
QUESTIONS = "test_questions.jsonl"
"""File in the folder: the questions as asked, with their options in the official order."""
_OPTION = re.compile(r"^\(([A-Z])\) (.*)$", re.MULTILINE)


def scan_vstar(path: Path) -> Iterator[tuple[Path, Sample | DataError]]:
    """One entry per question: (its file, the sample or why it is not as published).

    The published folder has target boxes, its TSV form has none. Options have the order of
    `test_questions.jsonl`, or of the TSV. Without that file, a folder gives the order of its annotations, in
    which the right option always comes first, so that the caller has to shuffle them. The caller also
    chooses the tools to offer (`vtune.data.offer`).

    Args:
        path: The folder with `direct_attributes` and `relative_position`, or a TSV with the columns index,
            image, question, A, B …, answer and category.

    Raises:
        DataError: If the folder or the TSV as a whole is not as published.
    """
    return _folder(path) if path.is_dir() else _table(path)


def _folder(path: Path) -> Iterator[tuple[Path, Sample | DataError]]:
    asked = _asked(path / QUESTIONS)
    for category in CATEGORIES:
        if not (path / category).is_dir():
            raise DataError(
                f"there is no folder {path / category}",
                fix=f"give the folder that holds {' and '.join(CATEGORIES)}",
            )
    for category in CATEGORIES:
        pictures = {
            file.stem: file for file in sorted((path / category).iterdir()) if file.suffix.lower() in PICTURES
        }
        notes = {file.stem: file for file in sorted((path / category).glob("*.json"))}
        if not notes:
            raise DataError("there is no question", where=str(path / category), fix="download it again")
        for stem in sorted(set(pictures) ^ set(notes)):
            error = DataError(
                f"{stem} is not a picture with its own JSON file",
                where=str(path / category),
                fix="download the folder again: every picture has its annotation beside it",
            )
            yield path / category / stem, error
        for stem, file in notes.items():
            if stem in pictures:
                try:
                    sample = _annotated(category, stem, pictures[stem], file)
                    yield file, _as_asked(sample, asked, path / QUESTIONS)
                except DataError as error:
                    yield file, error


def _asked(file: Path) -> dict[str, tuple[tuple[str, ...], str]]:
    """Picture path -> (its options in the official order, the letter of the right one).

    Raises:
        DataError: If a row is not as published.
    """
    if not file.is_file():
        return {}
    found = {}
    for number, line in enumerate(read_text(file).splitlines()):
        try:
            row = parse_json(line)
            picture, text, label = row["image"], row["text"], row["label"]
            options = tuple(option[2].strip() for option in _OPTION.finditer(text))
        except (ValueError, TypeError, KeyError):
            raise DataError(
                "no question as published", where=f"{file}, row {number}", fix="download it again"
            ) from None
        found[picture] = options, label
    return found


def _as_asked(sample: Sample, asked: Mapping[str, tuple[tuple[str, ...], str]], file: Path) -> Sample:
    """The sample with its options in the official order.

    Raises:
        DataError: If the file has different options for its picture, or a different right one.
    """
    if not asked:
        return sample
    options, label = asked.get(sample.extra["image_path"], ((), ""))
    order = {option: number for number, option in enumerate(options)}
    known = sorted(options) == sorted(option.strip() for option in sample.choices)
    if not known or len(order) < len(options) or label != ascii_uppercase[order[sample.answer.strip()]]:
        raise DataError(
            f"{QUESTIONS} and the annotation of {sample.id} differ in their options, or in the right one",
            where=str(file),
            fix="download the folder again",
        )
    question = sample.prompt[-1].content.split("\n", 1)[1].removesuffix(listing(sample.choices))
    choices = tuple(sorted(sample.choices, key=lambda choice: order[choice.strip()]))
    return replace(sample, prompt=multiple_choice(question, choices), choices=choices, ground_truth=label)


def _annotated(category: str, stem: str, picture: Path, file: Path) -> Sample:
    try:
        data = read_bytes(picture)
    except OSError as error:
        raise DataError(
            f"the picture cannot be read: {error.strerror}", where=str(picture), fix="download it again"
        ) from None
    size = size_of(data, where=str(picture))
    note = _note(file)
    targets, boxes = _list(note, "target_object", str, file), _list(note, "bbox", list, file)
    choices = tuple(_list(note, "options", str, file))
    question = note.get("question")
    if not isinstance(question, str) or len(choices) < 2:
        raise DataError("no question, or fewer than two options", where=str(file), fix="download it again")
    if not boxes or len(targets) != len(boxes):
        raise DataError(
            f"{len(boxes)} box(es) for {len(targets)} target(s)", where=str(file), fix="download it again"
        )
    return Sample(
        id=f"{SOURCE}/{category}/{stem}",
        source=SOURCE,
        prompt=multiple_choice(question, choices),
        images=(Picture(data=data),),
        ability="visual_search",
        ground_truth="A",
        answer=choices[0],
        verifier=choice.NAME,
        evidence=tuple(_evidence(label, box, size, file) for label, box in zip(targets, boxes, strict=True)),
        choices=choices,
        extra={"category": category, "image_path": f"{category}/{picture.name}"},
    )


def _note(file: Path) -> dict[str, Any]:
    try:
        note = parse_json(read_text(file))
    except (OSError, ValueError) as error:
        raise DataError(f"not JSON: {error}", where=str(file), fix="download it again") from None
    if not isinstance(note, dict):
        raise DataError("not a JSON object", where=str(file), fix="download it again")
    return note


def _list(note: dict[str, Any], key: str, kind: type, file: Path) -> list[Any]:
    found = note.get(key)
    if not isinstance(found, list) or not all(isinstance(item, kind) for item in found):
        raise DataError(f"`{key}` is not a list as published", where=str(file), fix="download it again")
    return found


def _evidence(label: str, box: list[Any], size: tuple[int, int], file: Path) -> Evidence:
    numbers = [float(side) for side in box if isinstance(side, int | float) and not isinstance(side, bool)]
    if len(box) == 4 == len(numbers):
        x, y, width, height = numbers
        corners = clamp((x, y, x + width, y + height), *size)
        if proper(corners):
            return Evidence(label, 0, corners)
    raise DataError(
        f"box {box} is not [x, y, width, height] inside {size[0]}x{size[1]} pixels",
        where=str(file),
        fix="use pictures and boxes as published: the boxes are in their pixels",
    )


def _table(path: Path) -> Iterator[tuple[Path, Sample | DataError]]:
    for row in scan_tsv(path, ("question", "A", "B", "answer", "category")):
        try:
            yield path, row if isinstance(row, DataError) else question_of(row, SOURCE, CATEGORIES)
        except DataError as error:
            yield path, error
