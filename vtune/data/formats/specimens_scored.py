"""A few rows of the benchmarks that have their own scorers (see `specimens`)."""

import base64
import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from vtune.data.formats.specimens import Specimen, coded
from vtune.schema.parquet import write_rows


def ocrbench(folder: Path) -> Specimen:
    """OCRBench v2: one question for each of four metrics."""
    rows: list[dict[str, Any]] = [
        _row(0, "text recognition en", "What is written in the image?", ["Exit"]),
        _row(1, "math QA en", "Which is right? A, B or C?", ["B"], eval="multiple choice"),
        _row(
            2,
            "text grounding en",
            "Where is Exit? Output [x1, y1, x2, y2] from 0 to 1000.",
            [100, 160, 350, 500],
        ),
        _row(3, "key information extraction en", "Give the total as JSON.", ['{"total": ["12.00", "12"]}']),
    ]
    for number in range(len(rows)):
        (folder / f"{number}.jpg").write_bytes(base64.b64decode(coded(number)))
    file = folder / "OCRBench_v2.json"
    file.write_text(json.dumps(rows), encoding="utf-8")
    return Specimen(file)


def _row(number: int, kind: str, question: str, answers: list[Any], **more: Any) -> dict[str, Any]:
    return {
        "dataset_name": "check",
        "type": kind,
        "id": number,
        "image_path": f"{number}.jpg",
        "question": question,
        "answers": answers,
        **more,
    }


def mega_bench(folder: Path) -> Specimen:
    """MEGA-Bench: two questions of one task, and one that needs the official scorer."""
    root = folder / "MEGA-Bench"
    (root / "data").mkdir(parents=True)
    for number in range(3):
        (root / "data" / f"{number}.jpg").write_bytes(base64.b64decode(coded(number)))
    tasks = (
        ("sign_reading", "{'answer': 'Exit'}", {"answer": "exact_str_match"}),
        ("sign_reading", "{'answer': 'Hall'}", {"answer": "exact_str_match"}),
        ("sign_formula", "{'area': 'a^2'}", {"area": "latex_expr_equality"}),
    )
    rows = [
        {
            "task_name": task,
            "id": f"{task}_{number}",
            "task_description": "Read the sign. Demonstrate the output like this: Answer: …",
            "global_media": "[]",
            "example_text": "",
            "example_media": "[]",
            "query_text": "<image>\nWhat does it say?",
            "query_media": f"['./data/{number}.jpg']",
            "answer": answer,
            "metric_info": str(_metrics(**metrics)),
            "eval_context": "{}",
        }
        for number, (task, answer, metrics) in enumerate(tasks)
    ]
    file = root / "core" / "test-00000-of-00001.parquet"
    file.parent.mkdir()
    write_rows(file, pa.Table.from_pylist(rows).schema, rows)
    about = {"sign_reading": {"app": "Perception"}, "sign_formula": {"app": "Mathematics"}}
    (root / "all_task_meta.json").write_text(json.dumps(about), encoding="utf-8")
    return Specimen(root)


def _metrics(**metrics: str) -> dict[str, Any]:
    """How a task of one field is judged."""
    return {
        "field_score_function": metrics,
        "aggregation": {"function": "mean", "field_weights": dict.fromkeys(metrics, 1)},
        "response_parse_function": "answer_string",
    }
