"""lmms-eval's logs: `{date}_samples_{task}.jsonl`, one line per reply, and `{date}_results.json`.

Source: lmms-eval 0.7.3, `lmms_eval/evaluator.py` and `loggers/evaluation_tracker.py`.
"""

import hashlib
from pathlib import Path
from typing import Any

from vtune.files.writing import atomic_file, write_atomically
from vtune.runs.evaluate.exports.rows import (
    Pictures,
    Row,
    compact,
    ended,
    model_of,
    record,
    rows,
    task_of,
)
from vtune.runs.evaluate.finished import Finished

NAMES = {
    "vstar_bench": "vstar_bench",
    "VStarBench": "vstar_bench",
    "hr_bench_4k": "hrbench4k",
    "hr_bench_8k": "hrbench8k",
    "mme_realworld": "mmerealworld",
    "mme_realworld_lite": "mmerealworld_lite",
    "VLMBlind": "vlmsareblind",
    "MMMU_DEV_VAL": "mmmu_val",
    "MMMU_Pro_10c": "mmmu_pro_standard",
    "MMMU_Pro_V": "mmmu_pro_vision",
    "CountBenchQA": "countbench",
}
"""Stem of the data -> its task; other tasks are named like their file."""


def export(finished: Finished, out: Path) -> dict[str, Any]:
    """Write both files into a folder of the model, as upstream does.

    `filtered_resps` is what the task's `process_results` receives; `resps` is all that the policy wrote, and
    is left out if it is the same. Unlike upstream, `doc` is kept: question numbers (`doc_id`) refer to our
    data, whose order may differ. `trajectory` has the conversation.
    """
    folder = out / model_of(finished)
    date, task = ended(finished).strftime("%Y%m%d_%H%M%S"), task_of(finished, NAMES)
    pictures = Pictures(finished, out)
    samples = folder / f"{date}_samples_{task}.jsonl"
    count = 0
    with atomic_file(samples) as partial, partial.open("w", encoding="utf-8") as stream:
        for row in rows(finished, "lmms-eval"):
            stream.write(compact(_line(row, pictures)) + "\n")
            count += 1
    write_atomically(folder / f"{date}_results.json", compact(_results(finished, task, count)) + "\n")
    return {
        "files": [str(file.relative_to(out)) for file in sorted(folder.iterdir())],
        "rows": count,
        "left_out": int(finished.results["rollouts"]) - count,
        "pictures": len(pictures.written),
    }


def _line(row: Row, pictures: Pictures) -> dict[str, Any]:
    sample, reply = row.sample, row.trajectory.reply
    doc = {
        "id": sample.id,
        "question": row.question,
        "choices": list(sample.choices),
        "answer": sample.ground_truth,
        **{key: value for key, value in sample.extra.items() if isinstance(value, str | int | float | list)},
    }
    asked = [turn.content for turn in row.trajectory.messages if turn.role == "user"]
    return {
        "doc_id": row.number,
        "doc": doc,
        "input": asked[0] if asked else "",
        "target": sample.ground_truth,
        **({} if reply == row.prediction else {"resps": [reply]}),
        "filtered_resps": row.prediction,
        "doc_hash": hashlib.sha256(compact(doc).encode()).hexdigest(),
        "acc": row.score,
        "trajectory": record(row, pictures),
    }


def _results(finished: Finished, task: str, count: int) -> dict[str, Any]:
    results, suite = finished.results, finished.suite
    score = {key: value for key, value in results["score"].items() if isinstance(value, int | float)}
    return {
        "results": {task: {"alias": task, **{f"{key},none": value for key, value in score.items()}}},
        "configs": {
            task: {
                "task": task,
                "repeats": suite.rollouts,
                "generation_kwargs": {
                    "temperature": suite.rollout.temperature,
                    "max_new_tokens": suite.rollout.max_new_tokens,
                },
                "metadata": {"protocol": suite.protocol, "agent": suite.agent, "harness": "vtune"},
            }
        },
        "n-samples": {task: {"original": len(finished.samples), "effective": count}},
        "config": {"model": results["model"], "limit": results.get("limit")},
        "model_name": results["model"],
        "date": ended(finished).timestamp(),
    }
