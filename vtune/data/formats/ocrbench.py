"""OCRBench v2: 10,000 questions of 30 types about text in pictures, in English and Chinese."""

import ast
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from vtune.data.formats import specimens_scored
from vtune.data.formats.building import Found, Options, build_sample
from vtune.data.formats.source import Place, read_rows
from vtune.data.formats.table import FORMATS, Format, OfficialScorer, Replies, by_id
from vtune.data.formats.values import needed, pictures, text_of
from vtune.errors import DataError
from vtune.schema.fields import Row, mistyped, wrong
from vtune.schema.message import IMAGE
from vtune.schema.sample import Sample
from vtune.verifiers import ocr, reading

SOURCE = "ocrbench_v2"
_BY_EVAL = {"multiple choice": "letters", "case sensitive": "contains_cased"}
_VQA = (
    "APP agent;ASCII art classification;math QA;reasoning VQA;science QA;text recognition;"
    "document classification;cognition VQA;diagram QA"
)
METRIC: Mapping[str, str] = MappingProxyType(
    {f"{name} en": "contains" for name in _VQA.split(";")}
    | {f"{name} cn": "contains_chinese" for name in ("cognition VQA", "reasoning VQA")}
    | {
        "handwritten answer extraction cn": "handwritten",
        "formula recognition en": "formula",
        "formula recognition cn": "formula_chinese",
        "text counting en": "count_exact",
        "key information extraction en": "fields",
        "key information mapping en": "fields",
        "key information extraction cn": "fields",
        "VQA with position en": "answer_and_box",
        "text grounding en": "box",
        "text spotting en": "spotting",
        "table parsing en": "teds",
        "table parsing cn": "teds",
        "chart parsing en": "teds",
        "document parsing en": "teds",
        "document parsing cn": "teds",
        "text translation cn": "page",
        "fine-grained text recognition en": "page",
        "full-page OCR en": "page",
        "full-page OCR cn": "page",
    }
)
"""Type -> metric of the verifier `reading`; a row's `eval` may override it."""
CATEGORY: Mapping[str, str] = MappingProxyType(
    {
        name: category
        for category, names in {
            "text_recognition": "text recognition;fine-grained text recognition;full-page OCR",
            "text_detection": "text grounding;VQA with position",
            "text_spotting": "text spotting",
            "relationship_extraction": "key information extraction;key information mapping;"
            "handwritten answer extraction",
            "element_parsing": "document parsing;chart parsing;table parsing;formula recognition",
            "mathematical_calculation": "math QA;text counting",
            "visual_text_understanding": "document classification;cognition VQA;diagram QA",
            "knowledge_reasoning": "reasoning VQA;science QA;APP agent;ASCII art classification;"
            "text translation",
        }.items()
        for name in names.split(";")
    }
)
"""Type without its language -> category (`get_score.py`)."""
SHORT_ANSWER = "简答"
"""Marks a handwritten answer in sentences, which is scored as a page."""


def read_ocrbench(path: Path, options: Options) -> Iterator[Found]:
    """`OCRBench_v2.json` with its pictures beside it, or Parquet of ling99/OCRBench_v2."""
    for place, row in read_rows(path):
        try:
            if isinstance(row, DataError):
                raise row
            yield place, _sample(row, place, options)
        except DataError as error:
            yield place, error


def _sample(row: Row, place: Place, options: Options) -> Sample:
    kind = text_of("type", needed(row, "type"))
    if kind not in METRIC:
        raise wrong("type", f"unknown type {kind!r:.60}", "is it OCRBench v2?")
    question = text_of("question", needed(row, "question")).strip()
    answers = _plain(needed(row, "answers"))
    answers = answers if isinstance(answers, list) else [answers]
    metric = _metric(kind, row, question)
    column = "image" if row.get("image") is not None else "image_path"
    shown = pictures(column, needed(row, "image", "image_path"), options.base(place.file))
    parm: dict[str, Any] = {"metric": metric}
    if metric == "answer_and_box":
        parm["bbox"] = _plain(row.get("bbox"))
    number = text_of("id", needed(row, "id"))
    return build_sample(
        place,
        source=SOURCE,
        turns=[{"role": "user", "content": f"{IMAGE}\n{question}"}],
        images=shown,
        ability=ocr.NAME,
        identity=f"{SOURCE}/{number}",
        ground_truth=json.dumps(_truth(metric, answers), ensure_ascii=False),
        answer=str(answers[0])[:1000],
        verifier=reading.NAME,
        verifier_parm=parm,
        extra={
            "category": f"{CATEGORY[kind[:-3]]}_{kind[-2:]}",
            "type": kind,
            "row": {key: value for key, value in row.items() if key != "image" and value is not None},
        },
    )


def _metric(kind: str, row: Row, question: str) -> str:
    """The metric of a row: that of its type, or the one that `eval` asks for."""
    metric, said = METRIC[kind], row.get("eval")
    if metric in ("contains", "contains_chinese"):
        return _BY_EVAL.get(str(said), metric)
    if metric == "count_exact" and said == "regression":
        return "count_near"
    return "page" if metric == "handwritten" and SHORT_ANSWER in question else metric


def _truth(metric: str, answers: list[Any]) -> Any:
    """The ground truth in the form that the verifier `reading` reads.

    Raises:
        DataError: If the answers do not have that form.
    """
    if metric == "box":
        try:
            return [int(side) for side in answers]
        except (TypeError, ValueError):
            raise mistyped("answers", answers, "four numbers") from None
    if metric != "fields":
        return [
            answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
            for answer in answers
        ]
    found = answers[0]
    for _ in range(2):  # some are doubly encoded
        found = _plain(found.strip('"')) if isinstance(found, str) else found
    if not isinstance(found, dict):
        raise mistyped("answers", answers, "an object of fields")
    return {
        str(key): [str(one) for one in (value if isinstance(value, list) else [value])]
        for key, value in found.items()
    }


def _plain(value: Any) -> Any:
    """A value, decoded if it is text in JSON or Python's form; other texts stay. No code is run."""
    if not isinstance(value, str):
        return value
    for read in (json.loads, ast.literal_eval):
        try:
            found = read(value)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        if isinstance(found, dict | list):
            return found
    return value


def _rows(replies: Replies) -> Any:
    """The published rows with the replies, as `eval.py` reads them."""
    return [{**sample.extra["row"], "predict": answer} for sample, answer in replies]


def _scores(content: Any) -> Mapping[str, float | None]:
    """Scores per row; `get_score.py` leaves out rows marked `ignore` (empty reference translations)."""
    return by_id(
        ((str(row["id"]), None if row.get("ignore") == "True" else float(row["score"])) for row in content),
        "scores",
    )


def _replies(content: Any) -> Mapping[str, Any]:
    return by_id(((str(row["id"]), row["predict"]) for row in content if "predict" in row), "replies")


def _id(sample: Sample) -> str:
    return str(sample.extra["row"]["id"])


FORMATS.add(
    SOURCE,
    Format(
        read_ocrbench,
        "OCRBench_v2.json with its pictures, or Parquet of it",
        takes=("images", "tools"),
        specimen=specimens_scored.ocrbench,
        official=OfficialScorer(_rows, _scores, _id, _replies),
    ),
)
