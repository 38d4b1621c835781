"""`vtune scores export|import`: replies to a benchmark's official scorer, and its scores back.

Replies that take more than a few lines to score stay unscored until the benchmark's own script has scored
them, in a separate environment with its own dependencies. The files are those that the script reads and
writes.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any

from vtune.config import load_recipe
from vtune.data.formats.source import read_json
from vtune.data.formats.table import FORMATS, OfficialScorer
from vtune.errors import DataError, RecipeError
from vtune.files.writing import check_file_output, write_atomically
from vtune.metrics.by_source import by_source
from vtune.reward.audit import AuditRow
from vtune.reward.part import Unscored
from vtune.reward.score import Scorer
from vtune.runs.evaluate.audited import audit_facts, audited
from vtune.runs.evaluate.finished import RESULTS, TRAJECTORIES, Finished, read_finished, read_results
from vtune.runs.evaluate.grading import (
    as_shown,
    mark_of,
    recombined,
    scores_of,
    with_fallback,
)
from vtune.runs.evaluate.items import ITEMS, by_question
from vtune.runs.evaluate.rejudged import CACHE
from vtune.runs.evaluate.reopened import replacing
from vtune.runs.evaluate.suite import EvalSuite
from vtune.runs.evaluate.unjudged import check_silent
from vtune.runs.evaluate.windows import LEFT_OUT, is_left_out, slim
from vtune.schema.audit import forget_audit
from vtune.schema.parquet import fingerprint, write_trajectories
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory
from vtune.schema.verdict import Verdict
from vtune.verifiers import scored_elsewhere
from vtune.verifiers.verifier import given_answer

NEAR = 0.005
"""Our scores that differ from the official scorer's by more than this are counted; ours, half a point."""
NAMED = 5
"""Maximum number of questions that an error names."""


def _stored(found: Finished) -> Iterator[tuple[Trajectory, Sample]]:
    """The trajectories with their questions."""
    for trajectory in found.trajectories():
        yield trajectory, as_shown(found.samples[trajectory.sample_id], trajectory)


def export_replies(folder: Path, out: Path) -> dict[str, Any]:
    """Write the file that a benchmark's official scorer reads.

    Args:
        folder: Written by `vtune eval`; its data must not have been moved.
        out: The file.

    Returns:
        `out`; `replies`, their number; `waiting`, the number without a score.

    Raises:
        RecipeError: If the benchmark has no official scorer here, or a question has several replies.
        DataError: If the folder holds no evaluation, or its data have changed.
    """
    check_file_output(out, inputs=[folder])
    found, scorer = _finished(folder)
    if found.suite.rollouts > 1:
        raise RecipeError(
            f"the evaluation has {found.suite.rollouts} replies per question, and the scorer takes one",
            fix="evaluate with --set rollouts=1",
        )
    replies = []
    waiting = 0
    for trajectory, sample in _stored(found):
        if trajectory.stop_reason == "error":
            continue  # our failure: the scorer would count it as a wrong answer
        replies.append((sample, given_answer(trajectory.reply, sample) or ""))
        waiting += trajectory.reward is None or trajectory.reward.accuracy is None
    rows = scorer.write(replies)
    write_atomically(out, json.dumps(rows, ensure_ascii=False, indent=1, allow_nan=False) + "\n")
    return {"out": str(out), "replies": len(replies), "waiting": waiting}


def import_scores(folder: Path, file: Path) -> dict[str, Any]:
    """Import the official scorer's scores into a finished evaluation, joined by question.

    Waiting questions get its score; those that vtune scored keep theirs, and the two are compared.
    `results.json`, `items.jsonl` and `trajectories.parquet` are rewritten; repeating the import changes
    nothing. An audit that `vtune faithfulness` stored in the folder refers to the earlier scores and is
    removed.

    Args:
        folder: Written by `vtune eval`, and exported with `export_replies`.
        file: Written by the scorer.

    Returns:
        `score`; `official`: `file` with its `sha256`; `taken`, how many replies got its score; `left_out`,
        how many it excludes from its means, which are unscored; `compared`, how many have both scores;
        `differ`, ids of those that differ by more than `NEAR`; `not_exported`, ids in the file without a
        reply in this evaluation, which count nowhere.

    Raises:
        RecipeError: As `export_replies`.
        DataError: As `export_replies`, or if the file is not the scorer's, its replies differ from the
            evaluation's, or it has two scores for one question or none for a waiting one.
        RunFailed: If a model that judges calls gives no reply; nothing is written.
    """
    found, scorer = _finished(folder)
    scores, replies = _read(scorer, file)
    _check_replies(found, scorer, replies, file)
    exported = {
        scorer.name(sample): scored_elsewhere(sample)
        for trajectory, sample in _stored(found)
        if trajectory.stop_reason != "error"
    }
    wanted = {name for name, elsewhere in exported.items() if elsewhere}
    if missing := sorted(wanted - scores.keys()):
        named = ", ".join(missing[:NAMED])
        raise DataError(
            f"{len(missing)} of {len(wanted)} waiting questions have no score: {named}",
            where=str(file),
            fix="give the scorer the file of `vtune scores export` as it is",
        )
    unknown = sorted(scores.keys() - exported.keys())
    facts = {"file": str(file), "sha256": fingerprint(file), "not_exported": unknown}
    return _rewritten(found, scorer, scores, facts)


def _check_replies(found: Finished, scorer: OfficialScorer, replies: Mapping[str, Any], file: Path) -> None:
    """Check that the scored replies are those that this evaluation exported, as far as the file tells."""
    other = []
    for trajectory, sample in _stored(found):
        scored = replies.get(scorer.name(sample))
        if isinstance(scored, str) and trajectory.stop_reason != "error":
            ours = given_answer(trajectory.reply, sample) or ""
            other += [scorer.name(sample)] if scored.strip() != ours.strip() else []
    if other:
        raise DataError(
            f"{len(other)} of its replies are not those of {found.folder}: {', '.join(other[:NAMED])}",
            where=str(file),
            fix=f"give the scorer what `vtune scores export {found.folder}` writes",
        )


def _joined(
    found: Finished, scorer: OfficialScorer, scores: Mapping[str, float | None]
) -> Iterator[tuple[Trajectory, Sample]]:
    """The trajectories, one at a time; waiting ones get their scores."""
    for trajectory, sample in _stored(found):
        if scored_elsewhere(sample) and trajectory.stop_reason != "error":
            trajectory = _with_score(trajectory, scores[scorer.name(sample)], sample, found.suite)
        yield trajectory, sample


def _with_score(trajectory: Trajectory, score: float | None, sample: Sample, suite: EvalSuite) -> Trajectory:
    """A reply with the official scorer's score; a reply without an answer stays unreadable and wrong.

    Whatever the scorer leaves out is unscored.
    """
    reward = trajectory.reward
    if reward is not None and score is None:
        return replace(trajectory, reward=recombined(reward, Unscored(LEFT_OUT), sample, suite.reward))
    if reward is None or score is None or reward.parts.get("unreadable", 0.0) > 0:
        return trajectory
    verdict = Verdict(score, "the official scorer's", {"unreadable": 0.0})
    return replace(trajectory, reward=recombined(reward, verdict, sample, suite.reward))


def _rewritten(
    found: Finished, scorer: OfficialScorer, scores: Mapping[str, float | None], facts: Mapping[str, Any]
) -> dict[str, Any]:
    """Write everything that the scores change; all files are replaced at the end, `results.json` last."""
    marks, fallbacks, small, differ = [], [], [], []
    taken = left_out = compared = 0
    for trajectory, sample in _joined(found, scorer, scores):
        mark = mark_of(trajectory, sample)
        official = scores.get(scorer.name(sample))
        if scored_elsewhere(sample):
            taken += mark.score is not None
            left_out += is_left_out(trajectory)
        elif official is not None and mark.score is not None:
            compared += 1
            differ += [sample.id] if abs(official - mark.score) > NEAR else []
        marks.append(mark)
        fallbacks.append(with_fallback(mark, trajectory))
        small.append(slim(trajectory))
    rows = asyncio.run(_audited(found, scorer, scores))
    silent = {(row.sample_id, row.rollout): row.why for row in rows if row.silent}
    check_silent(found.folder, silent, len(marks), what="verdict on what their calls show")
    score = scores_of(found.suite.scorer, marks, fallbacks)
    official_facts = {**facts, "taken": taken, "left_out": left_out, "compared": compared, "differ": differ}
    joined = (trajectory for trajectory, _ in _joined(found, scorer, scores))
    known = found.results.get("official") or {}
    with replacing(found.folder) as files:
        changed = {
            "score": score,
            **by_question(marks, files[ITEMS]),
            "sources": by_source(small, evidence_score=found.suite.reward.evidence.full),
            **audit_facts(rows, found.suite),
            "official": official_facts,
        }
        write_trajectories(files[TRAJECTORIES], joined, run=found.folder)
        write_atomically(files[RESULTS], json.dumps({**found.results, **changed}, indent=2) + "\n")
        removed = known.get("sha256") != facts["sha256"] and forget_audit(found.folder)
    return {"score": score, "official": official_facts, "audit_removed": removed}


async def _audited(
    found: Finished, scorer: OfficialScorer, scores: Mapping[str, float | None]
) -> list[AuditRow]:
    """The audit of calls, with the new scores of the answers; a model's verdicts come from stored replies."""
    async with Scorer(found.suite.reward, judge_cache=found.folder / CACHE) as scoring:
        joined = (trajectory for trajectory, _ in _joined(found, scorer, scores))
        return await audited(joined, found.samples, scoring.judges)


def _finished(folder: Path) -> tuple[Finished, OfficialScorer]:
    """A finished evaluation and its benchmark's official scorer."""
    read_results(folder)
    suite = load_recipe(folder / "suite.yaml", EvalSuite)
    # Imported questions are in our own format; their `kind` is the name of their original format.
    for name in (suite.format, suite.kind):
        if name is not None and name in FORMATS and (scorer := FORMATS[name].official) is not None:
            return read_finished(folder), scorer
    raise RecipeError(
        f"no official scorer is known for questions of the format `{suite.format}`",
        where=str(folder),
        fix=f"it is known for {', '.join(name for name, one in FORMATS.items() if one.official)}",
    )


def _read(scorer: OfficialScorer, file: Path) -> tuple[Mapping[str, float | None], Mapping[str, Any]]:
    """Question id -> its score (None if left out by the scorer), and question id -> the scored reply."""
    content = read_json(file)
    try:
        scores, replies = scorer.read(content), scorer.replies(content)
        odd = [
            name
            for name, score in scores.items()
            if score is not None and not (isfinite(score) and -1e-9 <= score <= 1 + 1e-9)
        ]
    except DataError as error:
        raise DataError(error.what, where=str(file), fix=error.fix) from None
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
            fix="check what the scorer reports for it",
        )
    within = {name: None if score is None else min(max(score, 0.0), 1.0) for name, score in scores.items()}
    return within, replies
