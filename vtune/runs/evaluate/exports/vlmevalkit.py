"""VLMEvalKit's prediction files: `{model}_{dataset}.xlsx`, its TSV columns and the policy's replies.

Source: VLMEvalKit e8e78f05, `vlmeval/inference.py` (`infer_data_job`) and `vlmeval/smp/file.py`. Its scorers
read them with pandas: `python run.py --mode eval --data VStarBench --model M --work-dir OUT`.
"""

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from string import ascii_uppercase
from types import MappingProxyType
from typing import Any

from vtune.data.tsv import TsvRow, scan_tsv
from vtune.errors import MissingExtra, RecipeError
from vtune.files.writing import write_atomically
from vtune.runs.evaluate.exports.rows import Pictures, Row, compact, model_of, record, rows, task_of
from vtune.runs.evaluate.finished import Finished
from vtune.schema.sample import Sample

NAMES = {
    "vstar_bench": "VStarBench",
    "hr_bench_4k": "HRBench4K",
    "hr_bench_8k": "HRBench8K",
    "mme_realworld": "MME-RealWorld",
    "mme_realworld_lite": "MME-RealWorld-Lite",
    "MathVista": "MathVista_MINI",
    "MathVerse": "MathVerse_MINI",
    "MathVision": "MathVision",
}
"""Stem of the data -> its name; other names are those of their files."""
CELL = 32767
"""Characters that an xlsx cell can hold."""
_NOT_IN_XML = re.compile(r"[\x00-\x08\x0b-\x1f\ufffe\uffff]|_x[0-9A-Fa-f]{4}_")
"""Characters that an xlsx cell cannot hold, or that would be read back differently."""
_MISSING = frozenset(
    ("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A")
) | {"NA", "NULL", "NaN", "None", "n/a", "nan", "null"}
"""Texts that pandas reads as missing values."""
_KEPT = ("category", "l2-category", "cycle_category", "hint", "task")


def export(finished: Finished, out: Path) -> dict[str, Any]:
    """Write one file per rollout number; if there are several, the models are called `{model}_r0` and so on.

    A prediction that pandas would take for a missing value (nothing, `None`, `NA` …) gets a trailing space,
    as some scorers stop at missing values. `extra_records` holds the conversation as JSON, or the name of a
    file with it if it does not fit into a cell. If a prediction itself does not fit into an xlsx cell, the
    file is a TSV, which VLMEvalKit also reads.

    Raises:
        RecipeError: If the suite shuffled the options, as the scorer only knows the published order; or if
            VLMEvalKit's file has columns for these questions that the data lack.
        MissingExtra: If openpyxl is not installed.
    """
    choices = finished.suite.choices
    if choices is not None and isinstance(choices.order, int):
        raise RecipeError(
            "the options were shuffled, and VLMEvalKit reads the right letters from the published file",
            fix="evaluate with --set choices.order=official",
        )
    columns = _published(finished)
    pictures = Pictures(finished, out)
    tables: dict[int, list[dict[str, Any]]] = {}
    for row in rows(finished, "vlmevalkit"):
        tables.setdefault(row.trajectory.rollout, []).append(
            _cells(row, columns, pictures, finished.suite.kind)
        )
    name, task = model_of(finished), task_of(finished, NAMES)
    files = [
        _write(out / f"{name}{f'_r{rollout}' if len(tables) > 1 else ''}_{task}", table)
        for rollout, table in sorted(tables.items())
    ]
    count = sum(map(len, tables.values()))
    return {
        "files": files,
        "rows": count,
        "left_out": int(finished.results["rollouts"]) - count,
        "pictures": len(pictures.written),
    }


def _published(finished: Finished) -> dict[str, Mapping[str, str]]:
    """Question id -> the columns of its row, if the data are a TSV; ids end with the index.

    Raises:
        RecipeError: If the data are something else, and VLMEvalKit's file has columns that they lack.
    """
    found: dict[str, Mapping[str, str]] = {}
    tables = [path for path in map(Path, finished.suite.data) if path.suffix == ".tsv"]
    # With several files that share indices, the id says which file a question is from.
    by_index = {name.rpartition("/")[2]: name for name in finished.samples} if len(tables) == 1 else {}
    for path in tables:
        for row in scan_tsv(path, ()):
            if isinstance(row, TsvRow):
                index = row.values["index"]
                name = f"{path.stem}/{index}"
                name = name if name in finished.samples else by_index.get(index, "")
                found |= {name: row.values} if name else {}
    kind = finished.suite.kind
    open_ones = (one for one in finished.samples.values() if not one.choices)
    alone = next((one for one in open_ones if one.id not in found), None)
    if alone is not None and kind not in COLUMNS:
        what = "these questions" if kind is None else f"questions of the kind `{kind}`"
        raise RecipeError(
            f"{what} have columns in VLMEvalKit's file that these data do not have",
            where=f"{', '.join(finished.suite.data)}: {alone.id}",
            fix="evaluate on VLMEvalKit's TSV with --data if the suite reads it, or export for "
            "another harness",
        )
    return found


def _of_mathvista(sample: Sample) -> dict[str, str]:
    """The columns of MathVista_MINI.tsv that its scorer reads; lists are Python literals."""
    facets: dict[str, Any] = dict(sample.extra["facets"])
    about = {key: str(value) for key, value in facets.items()}
    kinds = {"answer_type": str(sample.extra["answer_type"]), "choices": str(list(sample.choices))}
    truths = {"answer": sample.answer, "answer_option": sample.ground_truth if sample.choices else ""}
    return about | kinds | truths | {"question": str(sample.extra["query"])}


def _of_mathverse(sample: Sample) -> dict[str, str]:
    facets: dict[str, Any] = dict(sample.extra["facets"])
    return {
        **{key: str(value) for key, value in facets.items()},
        "metadata": str({key: str(value) for key, value in facets.items() if key.startswith("subject")}),
        "question_for_eval": str(sample.extra["question_for_eval"]),
        "question": str(sample.extra["question"]),
        "answer": sample.ground_truth,
    }


def _of_mathvision(sample: Sample) -> dict[str, str]:
    return {
        "question": str(sample.extra["question"]),
        "choices": str(list(sample.choices)),
        "answer": sample.ground_truth,
        "category": str(sample.extra["category"]),
    }


COLUMNS: Mapping[str, Callable[[Sample], dict[str, str]]] = MappingProxyType(
    {"mathvista": _of_mathvista, "mathverse": _of_mathverse, "mathvision": _of_mathvision}
)
"""Kind of question -> the columns of its TSV, for data in another form. Their scorers read no other file."""


def _cells(
    row: Row, published: Mapping[str, Mapping[str, str]], pictures: Pictures, kind: str | None
) -> dict[str, Any]:
    """Column -> value."""
    sample = row.sample
    cells: dict[str, Any] = {"index": str(sample.extra.get("index", row.number))}
    known = published.get(sample.id)
    if known is not None:
        cells |= known
    elif kind is not None and kind in COLUMNS:
        cells |= COLUMNS[kind](sample)
    else:
        cells |= {"question": row.question, "answer": sample.ground_truth}
        cells |= {key: str(sample.extra[key]) for key in _KEPT if key in sample.extra}
    if sample.choices and kind not in COLUMNS:
        cells |= dict(zip(ascii_uppercase, sample.choices, strict=False)) | {"answer": sample.ground_truth}
    if cells["index"].isdecimal():
        cells["index"] = int(cells["index"])
    said = row.prediction
    cells["prediction"] = f"{said} " if said in _MISSING else said
    text = compact(record(row, pictures))
    if len(text) > CELL or _NOT_IN_XML.search(text):
        file = f"extra_records/{row.number}-{row.trajectory.rollout}.json"
        write_atomically(pictures.out / file, text)
        text = compact({"file": file})
    cells["extra_records"] = text
    return cells


def _write(path: Path, table: Sequence[Mapping[str, Any]]) -> str:
    """Write a table; return the file's name."""
    header = list(dict.fromkeys(key for cells in table for key in cells))
    lines: list[list[Any]] = [header, *([cells.get(key) for key in header] for cells in table)]
    fits = all(len(text) <= CELL and not _NOT_IN_XML.search(text) for text in _texts(lines))
    file = path.with_name(f"{path.name}.{'xlsx' if fits else 'tsv'}")
    if fits:
        _write_xlsx(file, lines)
    else:
        with file.open("w", newline="", encoding="utf-8") as stream:
            csv.writer(stream, delimiter="\t", quoting=csv.QUOTE_ALL).writerows(lines)
    return file.name


def _texts(lines: Sequence[Sequence[Any]]) -> Iterator[str]:
    return (value for line in lines for value in line if isinstance(value, str))


def _write_xlsx(file: Path, lines: Sequence[Sequence[Any]]) -> None:
    try:
        from openpyxl import Workbook
        from openpyxl.cell import WriteOnlyCell
    except ImportError:
        raise MissingExtra("openpyxl is not installed", fix="pip install 'vtune[export]'") from None
    book = Workbook(write_only=True)
    sheet = book.create_sheet("Sheet1")
    for line in lines:
        cells = [WriteOnlyCell(sheet, value=value) for value in line]
        for cell, value in zip(cells, line, strict=True):
            if isinstance(value, str):
                cell.data_type = "s"  # "=2" is not a formula
        sheet.append(cells)
    book.save(file)
