"""`vtune faithfulness`: CodeV's algorithm 1 over stored trajectories."""

import asyncio
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vtune.errors import DataError, RecipeError, RunFailed
from vtune.judge.client import JudgeEndpoint
from vtune.metrics.agreement import agreement
from vtune.metrics.faithfulness import faithfulness
from vtune.reward import evidence_boxes, evidence_model
from vtune.reward.audit import (
    AuditRow,
    audit,
    check_scored,
    comparison,
    judges_of,
    nobody_audited,
    unscored_reasons,
)
from vtune.reward.evidence_judge import AUTO, BOTH, EVIDENCE
from vtune.reward.recipe import RewardRecipe
from vtune.reward.score import Scorer
from vtune.runs.agent.unknown import unknown_tools, warn_of
from vtune.runs.audit.counterfactual import RerunWith, prepared, run_counterfactual
from vtune.runs.audit.located import Audited, locate
from vtune.runs.audit.looked import Looking
from vtune.runs.audit.people import People
from vtune.runs.evaluate.questions import read_records
from vtune.runs.evaluate.windows import portions
from vtune.schema.parquet import read_trajectories
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory

API_KEY = "OPENAI_API_KEY"
"""The environment variable with the key of a judge that the command line names; many local ones want none."""

REASONS = 5
"""Of unscored trajectories, how many reasons are reported."""

_RANK = re.compile(r"-rank-\d+(?=\.parquet$)")

ROWS, BYTES = 256, 128 * 2**20
"""Trajectories, and bytes of their pictures, that are in memory at the same time; ours."""


def run_faithfulness(
    path: Path,
    data: Sequence[Path],
    *,
    judge_url: str | None = None,
    judge_model: str | None = None,
    looks: str = AUTO,
    rerun: RerunWith | None = None,
) -> tuple[dict[str, Any], RunFailed | None]:
    """Audit what the tool calls of stored trajectories showed.

    Args:
        path: The folder of an `rl` or `eval` run, or a Parquet file of trajectories. A file outside of such a
            folder is judged by the levels of the shipped recipe `codev`.
        data: The samples that the trajectories answer; the run's own where it is empty.
        judge_url: An OpenAI-compatible endpoint that judges what boxes do not.
        judge_model: The model's name there.
        looks: Who says what a call shows: `auto`, `both` or the name of a judge. With `both` the numbers are
            those by boxes.
        rerun: With which exchanges, and which model, right answers are drawn again; None: they are not.

    Returns:
        The result, and the failure in which the command ends if no trajectory with calls could be audited:
        the result then has what needs no look. `all` and `sources`: algorithm 1 with both denominators,
        shares, buckets and intervals; `files`, with the same numbers for each file of a training run,
        those that several processes wrote of one step together, as `step-000000.parquet`;
        `settings`; `looks`; `judged_by`, how many trajectories with calls boxes and a model have judged;
        `note`, whether the numbers compare with CodeV's; `unscored`, the commonest reasons why something is
        not known, with their numbers. With `both` also `by_model`, the numbers by the model, and `agreement`
        of boxes and model on the trajectories that have calls. `people`: how far labels of people agree, see
        `People.result`; empty where there are none. `counterfactual`: see
        `vtune.runs.audit.counterfactual.run_counterfactual`; only where it is asked for.

    Raises:
        DataError: If there are no trajectories, or the samples they answer are not found.
        RecipeError: If a model is asked for, and nothing says which.
        RunFailed: If a larger share of their answers than `reward.max_unscored` is unscored.
    """
    audited = locate(path, tuple(map(str, data)))
    reward = _with_judge(audited.reward, judge_url, judge_model)
    names = _judges(looks)
    if reward.judge is None and any(name is not None and EVIDENCE[name].asks_model for name in names):
        raise RecipeError(
            "there is no model to ask",
            where=audited.settings,
            fix="name it with --judge-url and --judge-model",
        )
    reruns = None if rerun is None else prepared(rerun, audited.settings, path, seed=audited.seed)
    people, looking = People(path), Looking()
    judged = asyncio.run(_audit(audited, reward, names, [people, looking]))
    for rows in judged:
        _check_judged(_flat(rows), reward, path)
    first, *others = judged
    failed = nobody_audited(_flat(first))
    result = {"path": str(path), "settings": audited.settings, "looks": looks}
    result |= _results(first, audited.seed, reward.max_unscored)
    for rows in others:
        result |= _compared(_flat(first), _flat(rows), audited.seed, reward.max_unscored)
        failed = failed or nobody_audited(_flat(rows))
    result |= {"people": people.result()}
    if reruns is not None and failed is None:
        samples = {sample.id: sample for sample in read_records(audited.source)}
        found = run_counterfactual(reruns, looking.rows, samples, _portions(audited.files), reward)
        result |= {"counterfactual": found}
    return result, failed


def _check_judged(rows: Sequence[AuditRow], reward: RewardRecipe, path: Path) -> None:
    if not rows:
        raise DataError(
            "no trajectory answers a question that needs a look",
            where=str(path),
            fix="faithfulness is about searches: `search_abilities` and `search_sources` of the recipe",
        )
    check_scored(rows, reward.max_unscored)


def _results(rows: Mapping[str, list[AuditRow]], seed: int, limit: float) -> dict[str, Any]:
    """What one way to judge has found, of all files together and of each."""
    everything = _flat(rows)
    judged_by = judges_of(everything)
    return {
        "judged_by": judged_by,
        "note": comparison(judged_by),
        "unscored": dict(unscored_reasons(everything)[:REASONS]),
        **_numbers(everything, seed, limit),
        "files": {
            name: asdict(faithfulness(part, seed=seed, max_unaudited=limit))
            for name, part in rows.items()
            if part
        },
    }


def _compared(
    by_boxes: Sequence[AuditRow], by_model: Sequence[AuditRow], seed: int, limit: float
) -> dict[str, Any]:
    """What the model has found, and where it agrees with boxes."""
    said = [
        (a.any_faithful, b.any_faithful)
        for a, b in zip(by_boxes, by_model, strict=True)
        if a.calls  # without a call there is nothing to disagree about
    ]
    return {"by_model": _numbers(by_model, seed, limit), "agreement": asdict(agreement(said))}


def _judges(looks: str) -> tuple[str | None, ...]:
    """The judges that are asked one after the other; None: those of the recipe.

    Raises:
        RecipeError: If there is none of that name.
    """
    if looks == AUTO:
        return (None,)
    if looks == BOTH:
        return evidence_boxes.NAME, evidence_model.NAME
    if looks not in EVIDENCE:
        known = [AUTO, *EVIDENCE, BOTH]
        what = f"{looks!r} is not one of {', '.join(known)}"
        raise RecipeError(what, where="--looks", fix=EVIDENCE.meant(looks, AUTO, BOTH))
    return (looks,)


def _numbers(rows: Sequence[AuditRow], seed: int, limit: float) -> dict[str, Any]:
    sources = sorted({row.source for row in rows})
    parts = {source: [row for row in rows if row.source == source] for source in sources}
    return {
        "all": asdict(faithfulness(rows, seed=seed, max_unaudited=limit)),
        "sources": {
            source: asdict(faithfulness(part, seed=seed, max_unaudited=limit))
            for source, part in parts.items()
        },
    }


def _flat(rows: Mapping[str, list[AuditRow]]) -> list[AuditRow]:
    return [row for part in rows.values() for row in part]


def _with_judge(reward: RewardRecipe, url: str | None, model: str | None) -> RewardRecipe:
    """The recipe, with the judge that the command line names."""
    if not url or not model:
        return reward
    judge = JudgeEndpoint(
        base_url=url,
        model=model,
        temperature=0.0,  # CodeV's evaluation script
        max_tokens=4096,  # ours: room for a judge that reasons; CodeV's script has 500
        concurrency=16,
        retries=5,
        timeout_s=60.0,
        api_key_env=API_KEY if API_KEY in os.environ else None,
    )
    return reward.model_copy(update={"judge": judge})


async def _audit(
    audited: Audited, reward: RewardRecipe, judges: Sequence[str | None], takers: Sequence[People | Looking]
) -> list[dict[str, list[AuditRow]]]:
    """For each way to judge, audit rows by `_name_of`; a portion of trajectories is in memory at a time.

    What people said, and what is drawn again, is held against the first way.
    """
    samples = {sample.id: sample for sample in read_records(audited.source)}
    found: list[dict[str, list[AuditRow]]] = [{_name_of(file): [] for file in audited.files} for _ in judges]
    gone: set[str] = set()
    async with Scorer(reward) as scorer:
        for file, portion in _portions(audited.files):
            gone |= unknown_tools(portion)
            scored = await _scored(samples, portion, scorer)
            asked = [samples[t.sample_id] for t in scored]
            for number, (rows, by) in enumerate(zip(found, judges, strict=True)):
                audits = await audit(asked, scored, scorer.judges.by(by))
                rows[_name_of(file)] += audits
                for taker in takers if number == 0 else ():
                    taker.take(file, samples, scored, audits, scorer.judges.levels)
    warn_of(gone)
    return found


def _name_of(file: Path) -> str:
    """Its name, had one process written its step: intervals are of all trajectories of a step."""
    return _RANK.sub("", file.name)


def _portions(files: Sequence[Path]) -> Iterator[tuple[Path, list[Trajectory]]]:
    for file in files:
        for portion in portions(read_trajectories(file), rows=ROWS, size=BYTES):
            yield file, portion


async def _scored(
    samples: dict[str, Sample], portion: Sequence[Trajectory], scorer: Scorer
) -> list[Trajectory]:
    """The trajectories; those that were never scored now are."""
    if strangers := {t.sample_id for t in portion} - set(samples):
        raise DataError(
            f"no sample has the id {min(strangers)!r}", fix="name the samples' Parquet file with --data"
        )
    asked = [samples[name] for name in dict.fromkeys(t.sample_id for t in portion)]
    missing = iter(await scorer.score(asked, [t for t in portion if t.reward is None]))
    return [t if t.reward is not None else next(missing) for t in portion]
