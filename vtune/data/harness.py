"""Benchmarks from VLMEvalKit's TSV files, beside V* and HR-Bench: one sample per row, without tools.

MMMU and MMMU-Pro are also read as their authors publish them (`mmmu.py`).

A row's question and options stay as published; a protocol chooses the prompt around them. `extra` keeps what
scores are split by, the row's hint, and what the protocol's rule needs.
"""

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from vtune.data.mmmu import MMMU, MMMU_PRO, MMMU_PRO_VISION, Published, is_published, scan_published
from vtune.data.options import listing, multiple_choice
from vtune.data.tsv import TsvRow, scan_tsv
from vtune.errors import DataError
from vtune.schema.box import clamp, proper
from vtune.schema.message import IMAGE, Message, Picture
from vtune.schema.pixels import size_of
from vtune.schema.sample import Evidence, Sample
from vtune.schema.source_names import named_by
from vtune.verifiers import choice, counting, exact, math
from vtune.verifiers.choice import lettered
from vtune.verifiers.latex import is_formula, is_number

OPTIONS = "multi-choice options"
"""Column of MME-RealWorld: the options as a Python list of `(A) text`."""
TARGETS = "target_instances"
"""Column of TreeBench: boxes as a Python list of xyxy, in pixels."""
IN_PICTURE = "Answer the multiple-choice question in the picture with the letter of its option."
"""Wording of MMMU-Pro's vision questions if no protocol gives one; ours."""
UNSHOWN = "pictures_unshown"
"""Key in `extra`: how many pictures of a row neither its question nor its options refer to."""
MMMU_SPLIT = "validation"
"""The split of MMMU that is asked: its file also holds `dev`."""
BLIND_TASKS = (
    "Circled Letter",
    "Counting Grid - Blank Grids",
    "Counting Grid - Word Grids",
    "Line Plot Intersections",
    "Nested Squares",
    "Olympic Counting - Circles",
    "Olympic Counting - Pentagons",
    "Subway Connections",
    "Touching Circles",
)
_OPTION = re.compile(r"\(([A-Z])\) ?(.*)", re.DOTALL)
_REFERENCE = re.compile(r"<image (\d+)>")
_SUBJECT = re.compile(r"[^_]+_(.+?)_\d+")


def scan_realworld(path: Path) -> Iterator[Sample | DataError]:
    """MME-RealWorld, full or Lite: five options, the last of which is that the picture does not show it."""
    return _scan(path, ("question", "answer", "category", "l2-category"), _realworld)


def scan_treebench(path: Path) -> Iterator[Sample | DataError]:
    """TreeBench: options in columns, and the boxes of the targets, which become the evidence."""
    return _scan(path, ("question", "A", "B", "answer", "category", "l2-category", TARGETS), _treebench)


def scan_mmmu(path: Path) -> Iterator[Sample | DataError]:
    """MMMU, the split `validation`, with pictures inside the text; some rows have no options.

    Args:
        path: MMMU_DEV_VAL.tsv, or the published folder with that of each subject.

    Raises:
        DataError: If all rows are of other splits.
    """
    others: set[str] = set()

    def read(row: TsvRow, source: str) -> Sample | None:
        split = row.values.get("split", MMMU_SPLIT)
        if split == MMMU_SPLIT:
            return _interleaved(row, source)
        others.add(split)
        return None

    empty = True
    for entry in _scan(path, ("question", "answer"), read, MMMU):
        empty = False
        yield entry
    if empty and others:
        raise DataError(
            f"no row is of the split `{MMMU_SPLIT}`",
            where=str(path),
            fix=f"the column `split` holds {', '.join(sorted(others))}; is it MMMU_DEV_VAL.tsv?",
        )


def scan_mmmu_pro(path: Path) -> Iterator[Sample | DataError]:
    """MMMU_Pro_10c.tsv or the published folder: one to twelve options."""
    return _scan(path, ("question", "answer"), _interleaved, MMMU_PRO)


def scan_mmmu_pro_vision(path: Path) -> Iterator[Sample | DataError]:
    """MMMU_Pro_V.tsv or the published folder: question and options are in the picture.

    The options that the row lists are used to read answers.
    """
    return _scan(path, ("answer",), _mmmu_pro_vision, MMMU_PRO_VISION)


def scan_countbench(path: Path) -> Iterator[Sample | DataError]:
    """CountBenchQA: a whole number."""
    return _scan(path, ("question", "answer"), _countbench)


def scan_blind(path: Path) -> Iterator[Sample | DataError]:
    """VLMs Are Blind: nine tasks, whose questions each ask for their own form of answer."""
    return _scan(path, ("question", "answers", "task"), _blind)


def _scan(
    path: Path,
    needs: Sequence[str],
    read: Callable[[TsvRow, str], Sample | None],
    published: Published | None = None,
) -> Iterator[Sample | DataError]:
    """One entry per row that belongs to the benchmark: the sample, or what is wrong with it.

    Args:
        path: The TSV, or what the authors publish.
        needs: Columns that the TSV must have.
        read: The sample of a row and a source; None if the row belongs to another split.
        published: What the authors publish, if it can be read as well.

    Raises:
        DataError: As `scan_tsv` and `scan_published` do.
    """
    rows, source = scan_tsv(path, needs), named_by(path.stem)
    if published is not None and is_published(path):
        rows, source = scan_published(path, published.table), published.source
    for row in rows:
        try:
            entry = row if isinstance(row, DataError) else read(row, source)
        except DataError as error:
            entry = error
        if entry is not None:
            yield entry


def _realworld(row: TsvRow, source: str) -> Sample:
    choices = options_of(row, column=OPTIONS)
    return _choice(row, source, choices, ability="perception")


def _treebench(row: TsvRow, source: str) -> Sample:
    width, height = size_of(row.picture, where=row.place)
    evidence = []
    for box in _list(row, TARGETS):
        numbers = box if isinstance(box, list | tuple) else []
        sides = [float(side) for side in numbers if isinstance(side, int | float)]
        corners = clamp((sides[0], sides[1], sides[2], sides[3]), width, height) if len(sides) == 4 else None
        if corners is None or not proper(corners):
            raise DataError(
                f"box {box} of `{TARGETS}` is not [x0, y0, x1, y1] inside {width}x{height} pixels",
                where=row.place,
                fix="download it again: the boxes are in pixels of the pictures",
            )
        evidence.append(Evidence("target", 0, corners))
    return _choice(row, source, options_of(row), ability="visual_search", evidence=tuple(evidence))


def _interleaved(row: TsvRow, source: str) -> Sample:
    """A question with its pictures placed where its text and options refer to them; others are not shown."""
    choices = options_of(row, least=0)
    question = row.values["question"]
    listed = f"\n{listing(choices)}" if choices else ""
    order = [int(number) for number in _REFERENCE.findall(question + listed)]
    if any(not 1 <= number <= len(row.pictures) for number in order):
        raise DataError(
            f"it refers to picture {max(order)} of {len(row.pictures)}",
            where=row.place,
            fix="download it again",
        )
    marked = _REFERENCE.sub(IMAGE, question + listed)
    choices = tuple(_REFERENCE.sub(IMAGE, one) for one in choices)
    pictures = [row.pictures[number - 1] for number in order] or row.pictures
    content = marked if order else f"{IMAGE}\n" * len(pictures) + marked
    truths = [row.letter(choices)] if choices else _spellings(row.values["answer"])
    unshown = len(row.pictures) - len(set(order)) if order else 0
    answer = row.values["answer"].strip()
    open_verifier = math.NAME if is_number(answer) or is_formula(answer) else exact.NAME
    return Sample(
        id=f"{source}/{row.values['index']}",
        source=source,
        prompt=(Message("user", content, tuple(range(len(pictures)))),),
        images=tuple(Picture(data=picture) for picture in pictures),
        ability="knowledge",
        ground_truth=truths[0] if choices else answer,
        answer=row.values["answer"],
        verifier=choice.NAME if choices else open_verifier,
        verifier_parm={"aliases": truths} if not choices and open_verifier == exact.NAME else {},
        choices=choices,
        extra=_kept(row)
        | {"category": _subject(row), "inline": bool(order)}
        | ({UNSHOWN: unshown} if unshown else {})
        | ({} if choices else {"truths": truths}),
    )


def _mmmu_pro_vision(row: TsvRow, source: str) -> Sample:
    choices = options_of(row, least=1)
    return Sample(
        id=f"{source}/{row.values['index']}",
        source=source,
        prompt=(Message("user", f"{IMAGE}\n{IN_PICTURE}", (0,)),),
        images=(Picture(data=row.picture),),
        ability="knowledge",
        ground_truth=row.letter(choices),
        answer=row.values["answer"],
        verifier=choice.NAME,
        choices=choices,
        extra=_kept(row) | {"category": _subject(row)},
    )


def _countbench(row: TsvRow, source: str) -> Sample:
    return _open(row, source, row.values["answer"].strip(), ability="counting", verifier=counting.NAME)


def _blind(row: TsvRow, source: str) -> Sample:
    task = row.values["task"]
    if task not in BLIND_TASKS:
        raise DataError(f"unknown task {task!r}", where=row.place, fix=f"known: {', '.join(BLIND_TASKS)}")
    truth = row.values["answers"].strip()
    forms = [f"{{{truth}}}"]
    if task.startswith("Counting Grid"):
        numbers = [part.strip() for part in truth.split(",")]
        if len(numbers) != 2 or not all(number.isdecimal() for number in numbers):
            raise DataError(
                f"the answer {truth!r} is not `rows,columns`", where=row.place, fix="download it again"
            )
        rows, columns = numbers
        forms = [f"rows={{{rows}}} columns={{{columns}}}", f"({rows}, {columns})", f"({rows},{columns})"]
        forms += [f"{rows}, {columns}", f"{{{rows}}}{{{columns}}}"]
    return _open(row, source, truth, ability="perception", verifier=exact.NAME, forms=forms, task=task)


def _choice(
    row: TsvRow, source: str, choices: tuple[str, ...], *, ability: str, evidence: tuple[Evidence, ...] = ()
) -> Sample:
    letter = row.letter(choices)
    return Sample(
        id=f"{source}/{row.values['index']}",
        source=source,
        prompt=multiple_choice(row.values["question"], choices),
        images=(Picture(data=row.picture),),
        ability=ability,
        ground_truth=letter,
        answer=choices[ascii_uppercase.index(letter)],
        verifier=choice.NAME,
        evidence=evidence,
        choices=choices,
        extra=_kept(row),
    )


def _open(
    row: TsvRow,
    source: str,
    truth: str,
    *,
    ability: str,
    verifier: str,
    forms: Sequence[str] = (),
    task: str = "",
) -> Sample:
    if not truth:
        raise DataError("there is no answer", where=row.place, fix="download it again")
    return Sample(
        id=f"{source}/{row.values['index']}",
        source=source,
        prompt=(Message("user", f"{IMAGE}\n{row.values['question']}", (0,)),),
        images=(Picture(data=row.picture),),
        ability=ability,
        ground_truth=truth,
        answer=truth,
        verifier=verifier,
        verifier_parm={"aliases": list(forms)} if forms else {},
        extra=_kept(row) | ({"task": task} if task else {}),
    )


def options_of(row: TsvRow, *, column: str = "options", least: int = 2) -> tuple[str, ...]:
    """The options of a row: columns A, B … (`columns_of_options`), else a Python list in a column.

    Args:
        row: The row.
        column: Column of the list; `(A) ` before an option is removed if all have their letters.
        least: Minimum number of options; 0 allows rows without any.

    Raises:
        DataError: If there are fewer, or an option in the list is empty.
    """
    found = row.columns_of_options()
    if not found and row.values.get(column, "").strip():
        found = _bare([str(option) for option in _list(row, column)], always=column == OPTIONS)
        if "" in found:
            raise DataError(f"an option of `{column}` is empty", where=row.place, fix="download it again")
    if len(lettered(found)) < least:
        raise DataError(
            f"fewer than {least} of the columns A, B … hold an option, nor does a list in `{column}`",
            where=row.place,
            fix="fill them in",
        )
    return found


def _bare(options: Sequence[str], *, always: bool) -> tuple[str, ...]:
    """Options without their letters; unless `always`, only if each has its own: "(I) only" is a numeral."""
    found = [_OPTION.fullmatch(option) for option in options]
    lettered = all(one and one[1] == letter for one, letter in zip(found, ascii_uppercase, strict=False))
    return tuple(
        (one[2] if one and (always or lettered) else option).strip()
        for one, option in zip(found, options, strict=True)
    )


def _list(row: TsvRow, column: str) -> list[Any]:
    """A column that holds a Python list. No code is run.

    Raises:
        DataError: If it does not hold one.
    """
    try:
        found = ast.literal_eval(row.values[column])
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        found = None
    if not isinstance(found, list | tuple):
        raise DataError(f"`{column}` is not a Python list", where=row.place, fix="download it again")
    return list(found)


def _spellings(answer: str) -> list[str]:
    """The truths of an open question: a single one, or a Python list of them."""
    text = answer.strip()
    if text.startswith("["):
        try:
            found = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            found = None
        if isinstance(found, list) and found and all(isinstance(one, str) and one.strip() for one in found):
            return [one.strip() for one in found]
    return [text]


def _subject(row: TsvRow) -> str:
    """The subject of a question, from the first subject column that the file has."""
    for column in ("subject", "l2-category", "category", "subfield"):
        if value := row.values.get(column, "").strip():
            return value
    found = _SUBJECT.fullmatch(row.values.get("id", "").strip())
    return found[1] if found else "all"


def _kept(row: TsvRow) -> dict[str, Any]:
    kept = ("index", "id", "category", "l2-category", "hint")
    return {name: row.values[name] for name in kept if row.values.get(name, "").strip()}
