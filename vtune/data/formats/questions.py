"""Rows with a question, pictures and an answer: EasyR1, VisualProbe, ThinkLite, or by a column map."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from string import ascii_uppercase
from types import MappingProxyType
from typing import Any, Literal

from vtune.data.formats import specimens, specimens_places
from vtune.data.formats.building import OF_TEXT, Found, Options, build_sample, each, judged, others
from vtune.data.formats.cells import Cells
from vtune.data.formats.regions import BoxColumn, evidence_rows
from vtune.data.formats.source import Place, read_rows
from vtune.data.formats.table import FORMATS, Format, Glance
from vtune.data.formats.values import conversation, first, listed_options, needed, pictures_asked, text_of
from vtune.data.options import listing
from vtune.errors import DataError
from vtune.files.json_text import parse_json
from vtune.schema.fields import Row, mistyped, wrong
from vtune.schema.sample import Sample
from vtune.schema.source_names import named_by
from vtune.verifiers import choice, counting, judge

AnswerIs = Literal["number", "text"]
"""How an answer names an option: by its number (or letter or key), or by its text."""
QUESTION = ("problem", "question", "prompt", "query")
ANSWER = ("answer", "ground_truth", "solution", "label")
IMAGES = ("images", "image", "decoded_image")
IDENTITY = ("id", "qid", "doc_id", "question_id")
PARTS = ("data_source", "source", "dataset", "dataset_name")
"""Columns that may name the dataset that a row was collected from."""
_LETTERS = re.compile(r"\(?[A-Z]\)?(?:(?:\s*(?:[,;&/]|and)\s*|\s*)\(?[A-Z]\)?)+\.?")
"""Several letters: more than one option is right, and the answer is a text."""
_LETTERED = re.compile(r"(?:\(([A-Za-z])\)|([A-Za-z])\s?[.):\uff1a\u3001])\s*(\S.*)", re.DOTALL)
"""An option with its letter: `A. red`, `(A) red`, `A) red`, `A: red`."""
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
"""With a leading zero it is a text, such as a room number or a year."""
_DECIMAL = re.compile(r"-?(?:0|[1-9][0-9]{0,14})\.[0-9]{1,15}")
LEVELS = ("easy", "medium", "hard")
"""VisualProbe's levels."""
THINKLITE = ("FigureQA", "GEOS", "GeoQA", "Geometry3K", "IconQA", "OK-VQA", "ScienceQA", "TabMWP")
"""The datasets that ThinkLite-VL was collected from, spelled as in CodeV's code."""


def read_easyr1(path: Path, options: Options) -> Iterator[Found]:
    """Samples of EasyR1's files: `problem`, `images`, `answer` (`solution` in VisualProbe)."""
    return each(
        read_rows(path), lambda row, place: question_sample(row, place, options, source=_named(row, place))
    )


def read_visual_probe(path: Path, options: Options) -> Iterator[Found]:
    """VisualProbe's `val.json`: open questions, judged by a model; the folder's name gives the level."""

    def convert(row: Row, place: Place) -> Sample:
        level = next((word for word in LEVELS if word in place.file.parent.name.lower()), None)
        if level is None:
            raise DataError(
                "the folder name does not say which level the questions have",
                where=str(place.file),
                fix=f"keep the published names: VisualProbe_{', VisualProbe_'.join(map(str.title, LEVELS))}",
            )
        sample = question_sample(
            row,
            place,
            replace(options, verifier=options.verifier or judge.NAME),
            source=f"visual_probe_{level}",
            ability="visual_search",
        )
        return replace(sample, extra={**sample.extra, "category": level})

    return each(read_rows(path), convert)


def read_thinklite(path: Path, options: Options) -> Iterator[Found]:
    """Samples of ThinkLite-VL's files, whose columns have had several names.

    A row's source is the data set that it was collected from (CodeV's figure 7 splits by it) if a column or
    its id says so, else `thinklite`.
    """
    return each(
        read_rows(path), lambda row, place: question_sample(row, place, options, source=_part(row, place))
    )


def question_sample(
    row: Row,
    place: Place,
    options: Options,
    *,
    source: str,
    ability: str = "",
    question: Sequence[str] = QUESTION,
    answer: Sequence[str] = ANSWER,
    images: Sequence[str] = IMAGES,
    choices: Sequence[str] = ("choices", "options"),
    answer_is: AnswerIs | None = None,
    identity: Sequence[str] = IDENTITY,
    evidence: BoxColumn | None = None,
    verifier_parm: Mapping[str, Any] = MappingProxyType({}),
    read: Sequence[str] = (),
) -> Sample:
    """The sample of a row.

    Args:
        row: As on disk; in a table of texts, a number or a list of answers may be given as text.
        place: Where the row is.
        options: Options of the import.
        source: `data_source`.
        ability: Task family.
        question: Columns that may hold the question, text or turns.
        answer: Columns that may hold the reference.
        images: Columns that may hold pictures.
        choices: Columns that may hold options; they are appended to the question if it does not list them.
        answer_is: How the answer names the right option; None: decided per row, if it is unambiguous.
        identity: Columns that may hold an id; it is made unique by the source.
        evidence: The column with boxes of the question's target.
        verifier_parm: Options of the verifier.
        read: Further columns that were used; all others are kept in `extra_info`.

    Raises:
        DataError: Names the column and the fix.
    """
    asked, truth = needed(row, *question), needed(row, *answer)
    shown = pictures_asked([*images, "images"][0], first(row, *images), asked, options.base(place.file))
    turns = conversation(asked, len(shown))
    user = next((turn for turn in reversed(turns) if turn["role"] == "user"), turns[-1])
    given, keys = _choices(first(row, *choices), choices)
    truth = _cell(row, truth, given, user["content"], options, answer_is, answer[0])
    if given:
        truth = _lettered(truth, given, keys, answer[0], answer_is)
        user["content"] = _listed(user["content"], given)
    used = {*question, *answer, *images, *choices, *identity, *read, "data_source", "ability"}
    found = _judged(user["content"], truth, options, given, answer[0])
    return build_sample(
        place,
        source=source,
        turns=turns,
        images=shown,
        ability=ability or str(row.get("ability") or ""),
        identity=_identity(row, identity, source),
        evidence=evidence_rows(evidence, row.get(evidence.column), shown) if evidence else (),
        extra=others(row, *used, *([evidence.column] if evidence else ())),
        **(found | {"verifier_parm": {**verifier_parm, **found["verifier_parm"]}}),
    )


def _identity(row: Row, columns: Sequence[str], source: str) -> str | None:
    number = first(row, *columns)
    return None if number is None else f"{source}/{text_of(columns[0], number)}"


def _part(row: Row, place: Place) -> str:
    """The part of ThinkLite that a row belongs to, from a column or the start of an id (`FigureQA_17`)."""
    named, number = first(row, *PARTS), first(row, *IDENTITY)
    if isinstance(named, str) and named.strip():
        name = _plain(named)
        return next((part for part in THINKLITE if _plain(part) == name), named.strip())
    begin = _plain(number) if isinstance(number, str) else ""
    return next((part for part in THINKLITE if begin.startswith(_plain(part))), "thinklite")


def _plain(name: str) -> str:
    return "".join(sign for sign in name.lower() if sign.isalnum())


def _named(row: Row, place: Place) -> str:
    value = row.get("data_source")
    return value if isinstance(value, str) and value else named_by(place.name.split("/")[0])


def _choices(value: Any, names: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """(options, keys) from a list, which has no keys, from {letter or number: text}, or from either as text.

    Empty options at the end are left out: in a table they are there because other rows have more options.

    Raises:
        DataError: If an earlier option is empty or missing: later letters would name the wrong options.
    """
    column = names[0] if names else "choices"
    if isinstance(value, str):
        value = _literal(value, column) if value.strip() else None
    keyed = isinstance(value, Mapping)
    if isinstance(value, Mapping):
        # By length first, so that "10" sorts after "2".
        entries = sorted(((str(key), item) for key, item in value.items()), key=lambda e: (len(e[0]), e[0]))
    elif value is None or isinstance(value, list):
        entries = [(str(number), item) for number, item in enumerate(value or ())]
    else:
        raise mistyped(column, value, "a list of options")
    while entries and _is_empty(entries[-1][1]):
        entries.pop()
    keys = [key for key, _ in entries]
    if not _in_turn(keys) or any(_is_empty(item) for _, item in entries):
        there = ", ".join(key for key, item in entries if not _is_empty(item))
        raise wrong(
            column,
            f"the options are {there[:60]}, not A, B … or 0, 1 … without a gap",
            "fill in what is missing, or drop the row",
        )
    return _bare([text_of(column, item) for _, item in entries]), keys if keyed else []


def _bare(texts: Sequence[str]) -> tuple[str, ...]:
    """Options without their leading letters, if all have one, in order: `A. red`, `(B) blue`."""
    found = [_LETTERED.fullmatch(text.strip()) for text in texts]
    letters = "".join((match[1] or match[2]).upper() for match in found if match is not None)
    if len(texts) < 2 or letters != ascii_uppercase[: len(texts)]:
        return tuple(texts)
    return tuple(match[3] for match in found if match is not None)


def _judged(
    question: str, truth: Any, options: Options, choices: tuple[str, ...], column: str
) -> dict[str, Any]:
    """Who judges, if a truth names an option or appears among an option's words (15 in `15 cm`).

    Raises:
        DataError: If no option contains the truth: every letter would be wrong. Not if the caller names the
            verifier, as options may then be only a hint.
    """
    found = judged(question, truth, options, column=column, choices=choices or None)
    if not choices or options.verifier is not None or isinstance(truth, list):
        return found
    letters = {*re.findall("[A-Z]", found["ground_truth"])}
    if _LETTERS.fullmatch(found["ground_truth"]) and letters <= {*ascii_uppercase[: len(choices)]}:
        return found
    right = " ".join(found["ground_truth"].casefold().split())
    words = (f" {' '.join(option.casefold().split())} " for option in choices)
    if found["verifier"] != choice.NAME and not any(f" {right} " in text for text in words):
        raise wrong(
            column,
            f"{found['ground_truth']!r:.40} is not one of the options",
            "write the letter of one, or its text; if the question is not multiple choice, name a verifier",
        )
    return found


def _listed(question: str, choices: Sequence[str]) -> str:
    """The question with the options appended, unless it already lists them."""
    return question if listed_options(question) else f"{question}\n{listing(choices)}"


def _is_empty(option: Any) -> bool:
    return option is None or option != option or (isinstance(option, str) and not option.strip())


def _in_turn(keys: Sequence[str]) -> bool:
    """Whether the keys are letters from A, or numbers from 0 or 1, each exactly once."""
    count = len(keys)
    letters, numbers = ascii_uppercase[:count], [str(number) for number in range(count + 1)]
    return keys in ([*letters], [*letters.lower()], numbers[:-1], numbers[1:])


def _lettered(
    truth: Any, choices: Sequence[str], keys: Sequence[str], column: str, answer_is: AnswerIs | None
) -> Any:
    """The letter of the option that a truth names by number or key; any other truth unchanged.

    Raises:
        DataError: If no option has that number, a text is a number but not an option, or it names one option
            by its text and another by its number, and `answer_is` does not decide.
    """
    if isinstance(truth, bool) or not isinstance(truth, str | int | float):
        return truth
    # Also handles 1.0: a column of whole numbers with a null in it becomes a column of floats.
    text = text_of(column, truth).strip()
    letters = list(ascii_uppercase[: len(choices)])
    keys = keys or (letters if text in letters else [])
    numbers = keys if keys[:1] in (["0"], ["1"]) else [str(number) for number in range(len(choices))]
    named = keys if text in keys or (isinstance(truth, str) and answer_is is None) else numbers
    place = named.index(text) if text in named[: len(ascii_uppercase)] else None
    if text in choices and answer_is != "number":
        if answer_is is None and place is not None and choices[place] != text:
            raise wrong(
                column,
                f"{text:.20} is the text of one option and the number or letter of another",
                "say `answer_is: number` or `text` in a map of columns (format hf)",
            )
        return truth if answer_is is None else ascii_uppercase[choices.index(text)]
    if place is not None and answer_is != "text":
        return ascii_uppercase[place]
    if isinstance(truth, str) and answer_is is None:
        if text.isdecimal() and not any(text in option.split() for option in choices):
            # If a table's column contains any text, all its cells are text: from 0, or from 1?
            raise wrong(
                column, f"{text:.20} is not one of the options", "write the letter of one, or its text"
            )
        return truth
    if answer_is == "text" or (isinstance(truth, float) and not truth.is_integer()):
        return truth
    raise wrong(column, f"option {text:.20} of {len(choices)}", f"count the options from {numbers[0]}")


def _cell(
    row: Row,
    truth: Any,
    given: Sequence[str],
    question: str,
    options: Options,
    answer_is: AnswerIs | None,
    column: str,
) -> Any:
    """What an answer means; for a table cell: texts, its only possible number, or the text itself."""
    if not isinstance(row, Cells):
        return truth
    truth = _texts(truth, given or listed_options(question), options, column)
    return truth if answer_is == "text" else _counted(truth, given, options)


def _counted(cell: Any, choices: Sequence[str], options: Options) -> Any:
    """The number that a cell must be, beside options or as a count; otherwise the cell as written."""
    text = cell.strip() if isinstance(cell, str) else ""
    if not choices and options.verifier != counting.NAME:
        return cell
    if _WHOLE.fullmatch(text):
        begins = int(text) > len(choices) and any(text in option.split() for option in choices)
        return cell if begins else int(text)  # 15 among the options `15 cm` and `20 cm`
    if text in choices or not _DECIMAL.fullmatch(text):
        return cell
    # Programs write 1.0 if the column has an empty cell, and JSON's [1.50, 2] are the options 1.5 and 2.
    number = float(text)
    return number if number.is_integer() or text_of("", number) in choices else cell


def _texts(cell: Any, choices: Sequence[str], options: Options, column: str) -> Any:
    """The right answers of a cell that holds a list of texts as text; any other cell as written.

    VLMEvalKit's tables have such cells (DocVQA, TextVQA). A list of numbers is itself an answer, and so may
    be any list for a verifier whose ground truths are not texts. With options, it is unclear whether each of
    several answers is right, or only all together.

    Raises:
        DataError: If the list is empty or holds only empty texts.
    """
    if not isinstance(cell, str) or not cell.strip().startswith("["):
        return cell
    if options.verifier is not None and options.verifier not in OF_TEXT:
        return cell
    try:
        listed = _literal(cell.strip(), "")
    except DataError:
        return cell  # a text may begin with a bracket
    if not isinstance(listed, list) or not all(isinstance(item, str) for item in listed):
        return cell
    texts = [item for item in listed if item.strip()]
    if not texts:
        fix = "write the reference answer, or drop the row"
        raise wrong(column, f"an empty list, {cell.strip():.60}, is no reference answer", fix)
    return texts if len(texts) == 1 or (texts and not choices) else cell


def _literal(text: str, column: str) -> Any:
    for read in (parse_json, ast.literal_eval):
        try:
            return read(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
    raise wrong(column, f"not a list of options: {text[:60]!r}", 'write ["…", "…"]')


def is_question(glance: Glance) -> bool:
    """Whether a row is a question with its answer, neither judged as in verl's rows nor in chat turns."""
    asked = {"problem", "question", "query"} & glance.row.keys()
    return bool(glance.judge is None and asked and {"answer", "solution"} & glance.row.keys())


FORMATS.add(
    "thinklite",
    Format(
        read_thinklite,
        "Parquet of ThinkLite-VL",
        shares=lambda options: (is_question,),
        specimen=specimens.thinklite,
    ),
)
FORMATS.add(
    "easyr1",
    Format(
        read_easyr1,
        "Parquet or JSON of EasyR1; VisualProbe's JSON",
        looks=is_question,
        broad=True,
        specimen=specimens.easyr1,
    ),
)
FORMATS.add(
    "visual_probe",
    Format(
        read_visual_probe,
        "VisualProbe's val.json of one level, or the folder of them",
        shares=lambda options: (is_question,),
        specimen=specimens_places.visual_probe,
    ),
)
