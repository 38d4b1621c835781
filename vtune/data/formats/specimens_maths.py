"""A few rows of the mathematics and chart benchmarks (see `specimens`)."""

import base64
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from vtune.data.formats.specimens import Specimen, coded
from vtune.data.formats.specimens_tsv import table
from vtune.schema.fields import Row
from vtune.schema.parquet import write_rows

_TEXT, _IMAGE = pa.string(), pa.struct({"bytes": pa.binary(), "path": pa.string()})
_SHARD = "00000-of-00001.parquet"


FIGURES: Sequence[Row] = (
    {"question": "Which is longer?", "choices": ["red", "green", "blue"], "answer": "green"},
    {"question": "How many signs are there?", "answer": "3", "answer_type": "integer"},
    {"question": "How long is it?", "answer": "1.5", "answer_type": "float", "precision": 1.0, "unit": "m"},
    {"question": "Which years?", "answer": "[2007, 2008]", "answer_type": "list"},
)


def mathvista(folder: Path, asked: Sequence[Row] = FIGURES) -> Specimen:
    """MathVista: options, a whole number, a number with one decimal, a list."""
    hint = "Hint: Please answer the question and provide the final value at the end.\nQuestion: "
    rows = []
    for number, row in enumerate(asked, start=1):
        options = row.get("choices") or []
        listed = "".join(f"\n({letter}) {one}" for letter, one in zip("ABCD", options, strict=False))
        rows.append(
            {
                "pid": str(number),
                "image": f"images/{number}.jpg",
                "decoded_image": _image(number),
                "choices": None,
                "unit": None,
                "precision": None,
                "answer_type": "text",
                "question_type": "multi_choice" if options else "free_form",
                "query": f"{hint}{row['question']}" + (f"\nChoices:{listed}" if options else ""),
                "metadata": {
                    "category": "math-targeted-vqa",
                    "context": "geometry diagram",
                    "grade": "high school",
                    "img_height": 120,
                    "img_width": 200,
                    "language": "english",
                    "skills": ["geometry reasoning", "algebraic reasoning"][: 1 + number % 2],
                    "source": "Geometry3K",
                    "split": "testmini",
                    "task": "geometry problem solving" if options else "math word problem",
                },
                **row,
            }
        )
    about = dict.fromkeys(("category", "context", "grade", "language", "source", "split", "task"), _TEXT)
    schema = pa.schema(
        {
            **dict.fromkeys(("pid", "question", "image", "unit", "answer"), _TEXT),
            **dict.fromkeys(("question_type", "answer_type", "query"), _TEXT),
            "decoded_image": _IMAGE,
            "choices": pa.list_(_TEXT),
            "precision": pa.float64(),
            "metadata": pa.struct(
                {**about, "img_height": pa.int64(), "img_width": pa.int64(), "skills": pa.list_(_TEXT)}
            ),
        }
    )
    return _parquet(folder / "MathVista" / "data" / f"testmini-{_SHARD}", schema, rows)


def mathverse(folder: Path) -> Specimen:
    """MathVerse: one problem in two versions, with options, and one with an open answer."""
    whole = "As shown, find the length.\nChoices:\nA:2\nB:4\nC:8"
    asked = [
        ("Text Dominant", whole, "B", "multi-choice", whole),
        ("Vision Only", "", "B", "multi-choice", whole),
        ("Vision Intensive", "Find the area.", "12 cm^2", "free-form", "Find the area."),
    ]
    rows = [
        {
            "sample_index": str(number),
            "problem_index": str(1 + number // 3),
            "problem_version": version,
            "question": question,
            "image": _image(number),
            "answer": answer,
            "question_type": kind,
            "metadata": {
                "split": "testmini",
                "source": "Geometry3K",
                "subject": "Plane Geometry",
                "subfield": "Length" if kind == "multi-choice" else "Area",
            },
            "query_wo": f"Please directly answer the question.\nQuestion: {question}",
            "query_cot": f"Please first conduct reasoning.\nQuestion: {question}",
            "question_for_eval": evaluated,
        }
        for number, (version, question, answer, kind, evaluated) in enumerate(asked, start=1)
    ]
    texts = [name for name in rows[0] if name not in ("image", "metadata")]
    about = dict.fromkeys(("split", "source", "subject", "subfield"), _TEXT)
    schema = pa.schema({**dict.fromkeys(texts, _TEXT), "image": _IMAGE, "metadata": pa.struct(about)})
    return _parquet(folder / "MathVerse" / "testmini.parquet", schema, rows)


def mathvision(folder: Path) -> Specimen:
    """MathVision, test: options that are in the picture, and an open answer."""
    return _mathvision(folder, "test")


def mathvision_mini(folder: Path) -> Specimen:
    """MathVision, testmini."""
    return _mathvision(folder, "testmini")


def _mathvision(folder: Path, split: str) -> Specimen:
    asked: list[tuple[str, list[str], str]] = [
        ("Which figure comes next?\n<image1>", list("ABCDE"), "B"),
        ("Which number is missing in <image1>?", ["2", "4", "8"], "B"),
        ("How large is the share?\n<image1>", [], "\\frac{1}{2}"),
    ]
    rows = [
        {
            "id": str(number),
            "question": question,
            "options": options,
            "image": f"images/{number}.jpg",
            "decoded_image": _image(number),
            "answer": answer,
            "solution": None,
            "level": number,
            "subject": "arithmetic" if options else "algebra",
        }
        for number, (question, options, answer) in enumerate(asked, start=1)
    ]
    schema = pa.schema(
        {
            **dict.fromkeys(("id", "question", "image", "answer", "solution", "subject"), _TEXT),
            "options": pa.list_(_TEXT),
            "decoded_image": _IMAGE,
            "level": pa.int64(),
        }
    )
    return _parquet(folder / "MathVision" / "data" / f"{split}-{_SHARD}", schema, rows)


def charxiv_reasoning(folder: Path) -> Specimen:
    """CharXiv, reasoning: a name and a number, with the query that grades them."""
    asked = [(1, "Which curve is highest?", "P-101"), (4, "What is the mean?", "0.50")]
    return _charxiv(folder / "CharXiv_reasoning_val.tsv", "inst_category", asked)


def charxiv_descriptive(folder: Path) -> Specimen:
    """CharXiv, descriptive: two of its 19 templates."""
    asked = [(1, "What is its title?", "Not Applicable"), (19, "What is the number of subplots?", "4")]
    return _charxiv(folder / "CharXiv_descriptive_val.tsv", "qid", asked)


def _charxiv(path: Path, column: str, asked: list[tuple[int, str, str]]) -> Specimen:
    rows = [
        {
            "index": str(number),
            "image": coded(number),
            "question": f"{question}\n    * Your final answer should be short.",
            "grading_query": f"Score it.\n* Question: Q?\n* Ground Truth: none\n* Response: none\n"
            f"* Question: {question}\n    * Ground Truth: {truth}\n    * Response: {{PREDICTION}}\n",
            column: str(kind),
        }
        for number, (kind, question, truth) in enumerate(asked)
    ]
    return Specimen(table(path, rows))


def _image(number: int) -> Row:
    """A picture as Hugging Face stores it."""
    return {"bytes": base64.b64decode(coded(number)), "path": None}


def _parquet(path: Path, schema: pa.Schema, rows: list[Row]) -> Specimen:
    """Write a shard; return its snapshot folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_rows(path, schema, rows)
    return Specimen(path.parent.parent if path.parent.name == "data" else path.parent)
