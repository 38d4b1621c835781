"""V* bench: small things in large photographs (craigwu/vstar_bench)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vtune.data.options import multiple_choice
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
"""As in the data of CodeV and DeepEyes."""
CATEGORIES = ("direct_attributes", "relative_position")
"""The folders of the 191 questions; the two others of the published data set are not part of them."""
PICTURES = (".jpg", ".jpeg", ".png")


def read_vstar(path: Path) -> Iterator[Sample]:
    """The questions of the published folder, with their target boxes, or of its TSV form, without.

    Options keep the order of the file. In the folder's annotations the right one always comes first, so
    whoever asks has to shuffle them, and to say which tools they offer (`vtune.data.offer`).

    Args:
        path: The folder with `direct_attributes` and `relative_position`, or a TSV with the columns index,
            image, question, A, B …, answer and category.

    Raises:
        DataError: If something is missing or not as published, with its place.
    """
    for _, entry in scan_vstar(path):
        if isinstance(entry, DataError):
            raise entry
        yield entry


def scan_vstar(path: Path) -> Iterator[tuple[Path, Sample | DataError]]:
    """(its file, the sample or the error that `read_vstar` would raise there), one entry per question.

    Raises:
        DataError: If the folder or the TSV as a whole is not as published.
    """
    return _folder(path) if path.is_dir() else _table(path)


def _folder(path: Path) -> Iterator[tuple[Path, Sample | DataError]]:
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
                f"{stem} is not a pair of a picture and a JSON of its own",
                where=str(path / category),
                fix="download the folder again: every picture has its annotation beside it",
            )
            yield path / category / stem, error
        for stem, file in notes.items():
            if stem in pictures:
                try:
                    yield file, _annotated(category, stem, pictures[stem], file)
                except DataError as error:
                    yield file, error


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
        f"box {box} is not [x, y, width, height] inside of {size[0]}x{size[1]} pixels",
        where=str(file),
        fix="use pictures and boxes as published: the boxes are in their pixels",
    )


def _table(path: Path) -> Iterator[tuple[Path, Sample | DataError]]:
    for row in scan_tsv(path, ("question", "A", "B", "answer", "category")):
        try:
            yield path, row if isinstance(row, DataError) else question_of(row, SOURCE, CATEGORIES)
        except DataError as error:
            yield path, error
