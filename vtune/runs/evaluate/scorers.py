"""Replies to the official scorer of a benchmark, and its scores back: `vtune scores export|import`.

What no few lines can score stays unscored until the benchmark's own script has scored it, with its own
dependencies in an environment of its own. The files are those that the script reads and writes.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any

from vtune.data.formats.source import read_json
from vtune.errors import DataError, RecipeError
from vtune.files.writing import check_file_output, write_atomically
from vtune.metrics.by_source import by_source
from vtune.runs.evaluate.finished import RESULTS, TRAJECTORIES, Finished, read_finished, read_results
from vtune.runs.evaluate.grading import (
    as_shown,
    mark_of,
    recombined,
    scores_of,
    with_fallback,
)
from vtune.runs.evaluate.items import by_question
from vtune.runs.evaluate.suite import EvalSuite
from vtune.runs.evaluate.windows import slim
from vtune.schema.parquet import fingerprint, write_trajectories
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory
from vtune.schema.verdict import Verdict
from vtune.verifiers import scored_elsewhere
from vtune.verifiers.verifier import given_answer

NEAR = 0.005
"""Scores of ours and the official scorer's that differ by more are counted; ours, half a point."""
NAMED = 5
"""Questions that an error names."""

Replies = Sequence[tuple[Sample, str]]
"""Questions with the answer to each, empty where there was none."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The files of an official scorer."""

    write: Callable[[Replies], Any]
    """What it reads, as JSON."""
    read: Callable[[Any], Mapping[str, float]]
    """What it writes -> id as in the data -> score. Raises KeyError, TypeError or ValueError otherwise."""
    name: Callable[[Sample], str]
    """The id of a question in its files."""


def _ocrbench_rows(replies: Replies) -> Any:
    return [{**sample.extra["row"], "predict": answer} for sample, answer in replies]


def _ocrbench_scores(content: Any) -> Mapping[str, float]:
    return {str(row["id"]): float(row["score"]) for row in content if row.get("ignore") != "True"}


def _ocrbench_id(sample: Sample) -> str:
    return str(sample.extra["row"]["id"])


def _mega_tasks(replies: Replies) -> Any:
    """A task after the other, as lmms-eval writes its submission."""
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


def _mega_scores(content: Any) -> Mapping[str, float]:
    """A score below 0 counts as 0, as in the means of the evaluator."""
    return {
        f"{task['task_name']}/{query['global_idx']}": max(float(query["scores"]["query"]), 0.0)
        for task in content["data"]
        for query in task["query_response"]
    }


def _mega_id(sample: Sample) -> str:
    return f"{sample.extra['task']}/{sample.extra['row']['id']}"


LAYOUTS: Mapping[str, Layout] = {
    "ocrbench_v2": Layout(_ocrbench_rows, _ocrbench_scores, _ocrbench_id),
    "mega_bench": Layout(_mega_tasks, _mega_scores, _mega_id),
}
"""Kind of question -> files of its official scorer."""


def _stored(found: Finished) -> Iterator[tuple[Trajectory, Sample]]:
    """The trajectories with what was asked."""
    for trajectory in found.trajectories():
        yield trajectory, as_shown(found.samples[trajectory.sample_id], trajectory)


def export_replies(folder: Path, out: Path) -> dict[str, Any]:
    """Write the file that the official scorer of a benchmark reads.

    Args:
        folder: That `vtune eval` has written; its data are where they were.
        out: The file.

    Returns:
        `out`; `replies`, how many it holds; `waiting`, those that have no score yet.

    Raises:
        RecipeError: If the benchmark has no official scorer here, or a question has several replies.
        DataError: If the folder holds no evaluation, or its data have changed.
    """
    check_file_output(out, inputs=[folder])
    found, layout = _finished(folder)
    if found.suite.rollouts > 1:
        raise RecipeError(
            f"the evaluation has {found.suite.rollouts} replies per question, and the scorer takes one",
            fix="evaluate with --set rollouts=1",
        )
    replies = []
    waiting = 0
    for trajectory, sample in _stored(found):
        if trajectory.stop_reason == "error":
            continue  # our failure: the scorer would take it for a wrong answer
        replies.append((sample, given_answer(trajectory.reply, sample) or ""))
        waiting += trajectory.reward is None or trajectory.reward.accuracy is None
    rows = layout.write(replies)
    write_atomically(out, json.dumps(rows, ensure_ascii=False, indent=1, allow_nan=False) + "\n")
    return {"out": str(out), "replies": len(replies), "waiting": waiting}


def import_scores(folder: Path, file: Path) -> dict[str, Any]:
    """Take the official scorer's scores into a finished evaluation, joined by question.

    Questions that wait get its score; those that vtune has scored keep theirs, and are compared.
    `results.json`, `items.jsonl` and `trajectories.parquet` are rewritten; doing it again changes nothing.

    Args:
        folder: That `vtune eval` has written, and `export_replies` has read.
        file: That the scorer has written.

    Returns:
        `score`; `official`: `file` with its `sha256`; `taken`, how many replies got its score; `compared`,
        how many have one of both; `differ`, ids of those that differ by more than `NEAR`.

    Raises:
        RecipeError: As `export_replies`.
        DataError: As `export_replies`, or if the file is not the scorer's, or lacks a question that waits.
    """
    found, layout = _finished(folder)
    scores = _read(layout, file)
    wanted = {layout.name(sample) for sample in found.samples.values() if scored_elsewhere(sample)}
    asked = {one.sample_id for one, _ in _stored(found) if one.stop_reason != "error"}
    wanted &= {layout.name(found.samples[name]) for name in asked}
    if missing := sorted(wanted - scores.keys()):
        named = ", ".join(missing[:NAMED])
        raise DataError(
            f"{len(missing)} of {len(wanted)} questions that wait have no score: {named}",
            where=str(file),
            fix="give the scorer the file of `vtune scores export` as it is",
        )
    return _rewritten(found, layout, scores, {"file": str(file), "sha256": fingerprint(file)})


def _joined(
    found: Finished, layout: Layout, scores: Mapping[str, float]
) -> Iterator[tuple[Trajectory, Sample]]:
    """The trajectories, one at a time, those that wait with their scores."""
    for trajectory, sample in _stored(found):
        if scored_elsewhere(sample) and trajectory.stop_reason != "error":
            trajectory = _with_score(trajectory, scores[layout.name(sample)], sample, found.suite)
        yield trajectory, sample


def _with_score(trajectory: Trajectory, score: float, sample: Sample, suite: EvalSuite) -> Trajectory:
    """A reply with the official scorer's score; one without an answer stays unreadable, and wrong."""
    reward = trajectory.reward
    if reward is None or reward.parts.get("unreadable", 0.0) > 0:
        return trajectory
    verdict = Verdict(score, "the official scorer's", {"unreadable": 0.0})
    return replace(trajectory, reward=recombined(reward, verdict, sample, suite.reward))


def _rewritten(
    found: Finished, layout: Layout, scores: Mapping[str, float], facts: Mapping[str, Any]
) -> dict[str, Any]:
    """Write what the scores change; `results.json` comes last."""
    marks, fallbacks, small, differ = [], [], [], []
    taken = compared = 0
    for trajectory, sample in _joined(found, layout, scores):
        mark = mark_of(trajectory, sample)
        official = scores.get(layout.name(sample))
        if scored_elsewhere(sample):
            taken += mark.score is not None
        elif official is not None and mark.score is not None:
            compared += 1
            differ += [sample.id] if abs(official - mark.score) > NEAR else []
        marks.append(mark)
        fallbacks.append(with_fallback(mark, trajectory))
        small.append(slim(trajectory))
    score = scores_of(found.suite.scorer, marks, fallbacks)
    official_facts = {**facts, "taken": taken, "compared": compared, "differ": differ}
    changed = {
        "score": score,
        **by_question(marks, found.folder),
        "sources": by_source(small, evidence_score=found.suite.reward.evidence.full),
        "official": official_facts,
    }
    stored = found.folder / TRAJECTORIES
    write_trajectories(
        stored, (trajectory for trajectory, _ in _joined(found, layout, scores)), run=found.folder
    )
    write_atomically(found.folder / RESULTS, json.dumps({**found.results, **changed}, indent=2) + "\n")
    return {"score": score, "official": official_facts}


def _finished(folder: Path) -> tuple[Finished, Layout]:
    """A finished evaluation, and the files of its benchmark's official scorer."""
    kind = read_results(folder)["suite"].get("kind")
    layout = LAYOUTS.get(kind or "")
    if layout is None:
        raise RecipeError(
            f"no official scorer is known for questions of the kind `{kind}`",
            where=str(folder),
            fix=f"it is there for {', '.join(LAYOUTS)}",
        )
    return read_finished(folder), layout


def _read(layout: Layout, file: Path) -> Mapping[str, float]:
    try:
        scores = layout.read(read_json(file))
        odd = [
            name for name, score in scores.items() if not isfinite(score) or not -1e-9 <= score <= 1 + 1e-9
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(
            f"not what the official scorer writes: {type(error).__name__} {error}",
            where=str(file),
            fix="give the file that it was asked to write",
        ) from None
    if odd:
        raise DataError(
            f"the score of {odd[0]!r:.60} is not in [0, 1]",
            where=str(file),
            fix="see what the scorer says of it",
        )
    return {name: min(max(score, 0.0), 1.0) for name, score in scores.items()}
