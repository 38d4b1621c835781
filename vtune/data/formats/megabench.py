"""MEGA-Bench: its 440 core tasks, each with its own metrics, in eight fields (TIGER-Lab/MEGA-Bench)."""

import ast
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vtune.data.folders import within
from vtune.data.formats import specimens_scored
from vtune.data.formats.building import Found, Options, build_sample
from vtune.data.formats.source import Place, read_json, read_rows
from vtune.data.formats.table import FORMATS, Format, OfficialScorer, Replies, by_id
from vtune.data.formats.values import needed, pictures, text_of
from vtune.data.shards import Table, files_of
from vtune.errors import DataError
from vtune.schema.fields import Row, mistyped, wrong
from vtune.schema.message import IMAGE
from vtune.schema.sample import Sample
from vtune.verifiers import mega_bench

SOURCE = "mega_bench"
CORE = Table(split="test", config="core", columns={})
"""The folder may also hold `open` and the single-image subsets, which repeat questions or need a judge."""
META = "all_task_meta.json"
"""From the authors' repository: task -> its field (`app`) and more."""
VIDEOS = (".mp4", ".avi", ".mov", ".mkv", ".webm", ".gif")
MEDIA = ("global_media", "example_media", "query_media")
TEXTS = ("task_description", "example_text", "query_text")


def read_megabench(path: Path, options: Options) -> Iterator[Found]:
    """The configuration `core`, in a folder with the unpacked `data.zip` and `all_task_meta.json`; or a file.

    Questions about videos are skipped, as no picture can replace them. A question with a repeated id yields
    an error in its place.

    Raises:
        DataError: If the folder lacks the file of fields, `core`, or one of its shards.
    """
    root = path if path.is_dir() else path.parent
    fields = _fields(root)
    seen: dict[str, Place] = {}
    for file in files_of(path, CORE):
        for place, row in read_rows(file):
            try:
                if isinstance(row, DataError):
                    raise row
                media = [name for column in MEDIA for name in _listed(row, column)]
                if not any(name.lower().endswith(VIDEOS) for name in media):
                    sample = _sample(row, place, media, fields, options.images or root)
                    _check_new(sample.id, place, seen)
                    yield place, sample
            except DataError as error:
                yield place, error


def _check_new(identity: str, place: Place, seen: dict[str, Place]) -> None:
    """Check that no earlier row has this id, and add it to `seen`.

    Raises:
        DataError: If one has.
    """
    first = seen.setdefault(identity, place)
    if first is not place:
        raise wrong(
            "id",
            f"question {identity} already exists: {first.file}, row {first.row}",
            "keep one version of the data set in the folder",
        )


def _fields(root: Path) -> Mapping[str, str]:
    """Task -> field.

    Raises:
        DataError: If there is no such file, or it has another layout.
    """
    file = root / META
    if not file.is_file():
        raise DataError(
            f"there is no {file}, which names the field of each task",
            fix=f"copy {META} of https://github.com/TIGER-AI-Lab/MEGA-Bench there",
        )
    try:
        return {str(task): str(about["app"]) for task, about in read_json(file).items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"not the tasks of MEGA-Bench: {type(error).__name__} {error}",
            where=str(file),
            fix="copy it again",
        ) from None


def _sample(row: Row, place: Place, media: list[str], fields: Mapping[str, str], base: Path) -> Sample:
    task, number = text_of("task_name", needed(row, "task_name")), text_of("id", needed(row, "id"))
    if task not in fields:
        raise wrong("task_name", f"{META} has no task {task!r:.60}", "take both from the same version")
    texts = [text_of(column, row.get(column) or "") for column in TEXTS]
    content = "\n".join(texts)
    inline = bool(media) and content.count(IMAGE) == len(media)
    if IMAGE in content and not inline:
        raise wrong(
            "query_text", f"{content.count(IMAGE)} marks for {len(media)} pictures", "download the file again"
        )
    answer = _literal(row, "answer")
    if not isinstance(answer, dict) or not answer:
        raise mistyped("answer", answer, "an object of fields")
    shown = pictures("query_media", [str(within(base, name)) for name in media], base)
    return build_sample(
        place,
        source=SOURCE,
        turns=[{"role": "user", "content": content if inline else f"{IMAGE}\n" * len(media) + content}],
        images=shown,
        ability="mixed",
        identity=f"{SOURCE}/{task}/{number}",
        ground_truth=json.dumps(answer, ensure_ascii=False, default=str),
        verifier=mega_bench.NAME,
        verifier_parm=_judged(row, answer),
        extra={
            "category": fields[task],
            "task": task,
            "inline": inline,
            "row": {"id": row["id"], "answer": answer}
            | dict(zip(TEXTS, texts, strict=True))
            | {column: _listed(row, column) for column in MEDIA},
        },
    )


def _judged(row: Row, answer: Mapping[str, Any]) -> dict[str, Any]:
    """How the task is judged: what `mega_bench` reads from `verifier_parm`.

    A test of the whole answer (`global_aux_metrics`) becomes one more field; upstream only has it for
    `constrained_generation`.
    """
    info, context = _literal(row, "metric_info"), _literal(row, "eval_context")
    try:
        metrics = {name: info["field_score_function"].get(name) for name in answer}
        whole = info.get("global_aux_metrics") or {}
        aggregation = info["aggregation"]
        parser, function = info["response_parse_function"], aggregation["function"]
        weights = dict(aggregation["field_weights"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        why = f"no metrics of MEGA-Bench: {type(error).__name__} {error}"
        raise wrong("metric_info", why, "download the file again") from None
    if whole:
        odd = sorted(set(whole.values()) - mega_bench.OFFICIAL.keys())
        if odd:
            raise wrong("metric_info", f"{odd[0]!r:.60} of a whole answer", "is it MEGA-Bench's core?")
        metrics[next(iter(answer))] = next(iter(whole.values()))
    scored = {name: metric for name, metric in metrics.items() if metric not in (None, "unsupported")}
    boxes = context.get("bounding_boxes") if isinstance(context, dict) else None
    return {
        "parser": str(parser).lower(),
        "metrics": scored,
        "aggregation": str(function).lower(),
        "weights": {name: weights.get(name, 1) for name in scored},
    } | ({"boxes": list(boxes)} if boxes and mega_bench.IN_BOXES in scored.values() else {})


def _listed(row: Row, column: str) -> list[str]:
    found = _literal(row, column)
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise mistyped(column, found, "a list of paths")
    return found


def _literal(row: Row, column: str) -> Any:
    """The value of a column that holds a Python literal. No code is run."""
    value = row.get(column)
    try:
        return ast.literal_eval(value) if isinstance(value, str) and value.strip() else (value or [])
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise mistyped(column, value, "a Python literal") from None


def _tasks(replies: Replies) -> Any:
    """Replies grouped by task, as in lmms-eval's submission."""
    tasks: dict[str, dict[str, Any]] = {}
    for sample, answer in replies:
        row = sample.extra["row"]
        task = tasks.setdefault(
            sample.extra["task"],
            {
                "task_name": sample.extra["task"],
                "global_images": row["global_media"],
                "global_description": row["task_description"],
                "example_info": {"image_paths": row["example_media"], "example_text": row["example_text"]},
                "query_response": [],
            },
        )
        task["query_response"].append(
            {
                "response": answer,
                "correct_answer": row["answer"],
                "global_idx": row["id"],
                "images": row["query_media"],
                "query_text": row["query_text"],
            }
        )
    return list(tasks.values())


def _scores(content: Any) -> Mapping[str, float]:
    """A score below 0 counts as 0, as in the means of the evaluator."""
    rows = ((name, max(float(query["scores"]["query"]), 0.0)) for name, query in _queries(content))
    return by_id(rows, "scores")


def _replies(content: Any) -> Mapping[str, Any]:
    rows = ((name, query["response"]) for name, query in _queries(content) if "response" in query)
    return by_id(rows, "replies")


def _queries(content: Any) -> Iterator[tuple[str, Any]]:
    for task in content["data"]:
        for query in task["query_response"]:
            yield f"{task['task_name']}/{query['global_idx']}", query


def _id(sample: Sample) -> str:
    return f"{sample.extra['task']}/{sample.extra['row']['id']}"


FORMATS.add(
    SOURCE,
    Format(
        read_megabench,
        "Parquet of MEGA-Bench in a folder with its pictures and all_task_meta.json",
        takes=("images", "tools"),
        leaves_out=True,  # questions about videos
        specimen=specimens_scored.mega_bench,
        official=OfficialScorer(_tasks, _scores, _id, _replies),
    ),
)
