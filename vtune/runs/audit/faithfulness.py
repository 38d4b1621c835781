"""`vtune faithfulness`: CodeV's algorithm 1 over stored trajectories."""

import asyncio
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

from vtune.environments import DEFAULT
from vtune.errors import DataError, RunFailed
from vtune.judge.kept import read_kept
from vtune.metrics.audited import too_few_audited
from vtune.metrics.calls import calls_of
from vtune.metrics.faithfulness import faithfulness
from vtune.report.progress import Rows, say
from vtune.reward.audit import (
    AuditRow,
    audit,
    check_scored,
    comparison,
    judges_of,
    nobody_audited,
    unscored_reasons,
    with_chance,
)
from vtune.reward.evidence_judge import AUTO, BOTH
from vtune.reward.recipe import EvidenceLevels, RewardRecipe
from vtune.reward.score import Scorer
from vtune.runs.agent.unknown import unknown_tools, warn_of
from vtune.runs.audit.counterfactual import RerunWith, prepared, run_counterfactual
from vtune.runs.audit.human_labels import HumanLabels
from vtune.runs.audit.kept_replies import kept_replies
from vtune.runs.audit.located import Audited, locate, samples_of
from vtune.runs.audit.rerun_candidates import RerunCandidates
from vtune.runs.audit.rerun_turns import Reruns
from vtune.runs.audit.stored_audit import WithoutLook, stored_audits
from vtune.runs.audit.verdicts import write_verdicts
from vtune.runs.audit.ways import BASE, MAJORITY, Way, against_boxes, agreed, by_rule, together, ways_of
from vtune.runs.evaluate.unfinished import check_finished
from vtune.runs.evaluate.windows import portions
from vtune.schema.audit import NAME, SHARES, keep_audit, read_audit
from vtune.schema.parquet import count_rows, read_trajectories
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory

REASONS = 5
"""Maximum number of reasons reported for unscored trajectories."""

Taker = HumanLabels | RerunCandidates | WithoutLook
"""Consumes audited trajectories, a portion at a time."""
_RANK = re.compile(r"-rank-\d+(?=\.parquet$)")

ROWS, BYTES = 256, 128 * 2**20
"""Limits on trajectories, and on bytes of their pictures, in memory at a time; ours."""


def run_faithfulness(
    path: Path,
    data: Sequence[Path],
    *,
    judge_urls: Sequence[str] = (),
    judge_models: Sequence[str] = (),
    looks: str = AUTO,
    every: bool = False,
    rerun: RerunWith | None = None,
) -> tuple[dict[str, Any], RunFailed | None]:
    """Audit what the tool calls of stored trajectories showed.

    Args:
        path: The folder of an `rl` or `eval` run, or a Parquet file of trajectories. A file outside such a
            folder is judged by the levels of the built-in recipe `codev`.
        data: The samples that the trajectories answer; empty: the run's own.
        judge_urls: OpenAI-compatible endpoints that judge what boxes cannot: one for all models, or one for
            each.
        judge_models: The models' names there. Several models judge by majority.
        looks: Who decides what a call shows: `auto`, `both` or a judge's name. With `both`, the main numbers
            are by boxes.
        every: Whether models also judge the calls after the first that shows a target.
        rerun: Exchanges and model for regenerating right answers; None: no re-runs.

    Returns:
        The result, and the failure that ends the command if no trajectory with calls could be audited; the
        result then has only what needs no look. `all` and `sources`: algorithm 1 with both denominators,
        shares, buckets and intervals; `files`, with the same numbers for each file of a training run, where
        files of several processes for one step are merged as `step-000000.parquet`; `calls`, what calls were
        good for (`vtune.metrics.calls`), over right answers and over all; `settings`; `looks`; `asked`, by
        judge, which model was asked about looks and how, and `replies_before`, the number of replies that
        earlier audits got from a model of that name; `need_no_look`, by source, the number of trajectories
        for questions that need no look, which no other number includes; `judged_by`, how many trajectories
        with calls were judged by boxes and by a model; `note`, who they are, and whether the numbers are
        comparable with CodeV's; `unscored`, the most common reasons why something is unknown, with counts.
        With `both` also `by_model`, the numbers by the model (or the majority of several), `agreement` of
        boxes and model on the trajectories that it was asked about, `by_rule`, the number of others with
        calls, which are not looks by any judge, and `judges`, how far each can be trusted
        (`vtune.metrics.calibration`). `spent`: tokens used by models. `people`: how far people's labels
        agree, see `HumanLabels.result`; empty if there are none. `counterfactual`: see
        `vtune.runs.audit.counterfactual.run_counterfactual`; only if requested.

    Raises:
        DataError: If there are no trajectories, the evaluation is not finished, or the samples that they
            answer are not found.
        RecipeError: If a model is needed but none is named.
        RunFailed: If the share of unscored answers exceeds `reward.max_unscored`.
    """
    check_finished(path)
    audited = locate(path, tuple(map(str, data)))
    ways = ways_of(looks, audited.reward, judge_urls, judge_models, settings=audited.settings)
    reruns = None if rerun is None else prepared(rerun, audited, path)
    with kept_replies(path, ways) as replies:
        return _audited(path, audited, ways, replies, looks, reruns, every=every)


def _audited(
    path: Path,
    audited: Audited,
    ways: Sequence[Way],
    replies: Sequence[Path | None],
    looks: str,
    reruns: Reruns | None,
    *,
    every: bool,
) -> tuple[dict[str, Any], RunFailed | None]:
    """The result of the audit, and the failure that ends it, if any."""
    reward = audited.reward
    # They may come from another endpoint with a model of the same name.
    before = {
        way.name: len(read_kept(file).replies)
        for way, file in zip(ways, replies, strict=True)
        if file is not None
    }
    people, candidates, without = HumanLabels(path), RerunCandidates(), WithoutLook()
    takers: tuple[Taker, ...] = (people, candidates, without)
    judged = asyncio.run(_audit(audited, ways, replies, takers, every=every))
    judged = {name: _with_chance(of_way, reward.evidence) for name, of_way in judged.items()}
    for rows in judged.values():
        _check_judged(_flat(rows), reward, path, without)
    result: dict[str, Any] = {"path": str(path), "settings": audited.settings, "looks": looks}
    result |= {"need_no_look": dict(without.by_source)}
    limit = reward.max_unscored
    numbers, failed = _findings(judged, ways, looks, audited.seed, limit, before, kept=any(replies))
    result |= numbers | {"people": people.result()}
    result |= {"spent": {way.name: dict(way.purse.facts()) for way in ways if way.reward.judge is not None}}
    if reruns is not None and failed is None:
        result |= {"counterfactual": _drawn_again(reruns, audited, candidates, ways[0].reward)}
    if failed is None:  # a failed audit keeps the result of an earlier one
        _keep(path, result, judged)
    return result, failed


def _keep(
    path: Path, result: Mapping[str, Any], judged: Mapping[str, Mapping[str, Sequence[AuditRow]]]
) -> None:
    """Store the result in the run folder, if there is one and it is writable.

    If this audit left out too much to have shares, those of an earlier audit stay; what does not depend on
    them, such as re-runs, is stored anyway.
    """
    if not path.is_dir():
        return
    if not os.access(path, os.W_OK):
        stale = f"its {NAME} is of an earlier audit, and " if (path / NAME).exists() else ""
        say(f"warning: {path} cannot be written to: {stale}nothing of this one is kept")
        return
    kept = {**result, "no_shares": result["all"]["no_shares"]}
    before = read_audit(path)
    if kept["no_shares"] and before and not before.get("no_shares"):
        say(f"{path} keeps the shares of an earlier audit; this one has none")
        kept = {name: part for name, part in kept.items() if name not in SHARES}
    else:
        write_verdicts(path, judged[BASE], {name: of for name, of in judged.items() if name != BASE})
    keep_audit(path, kept)


def _drawn_again(
    reruns: Reruns, audited: Audited, candidates: RerunCandidates, reward: RewardRecipe
) -> dict[str, Any]:
    samples = samples_of(audited)
    reruns = replace(reruns, judge=None if reward.judge is None else reward.judge.model)
    return run_counterfactual(reruns, candidates.rows, samples, _portions(audited.files), reward)


def _findings(
    judged: Mapping[str, Mapping[str, list[AuditRow]]],
    ways: Sequence[Way],
    looks: str,
    seed: int,
    limit: float,
    before: Mapping[str, int],
    *,
    kept: bool,
) -> tuple[dict[str, Any], RunFailed | None]:
    """The findings of all ways to judge, and the failure of the first if it could audit nothing."""
    first = judged[BASE]
    asked = {
        way.name: {**way.asked, "replies_before": before.get(way.name, 0)}
        for way in ways
        if way.asked is not None
    }
    # When models are compared with boxes, the main numbers are by boxes.
    models = [] if looks == BOTH else [one["model"] for one in asked.values()]
    result = _results(first, models, seed, limit) | {"asked": asked}
    failures = [nobody_audited(_flat(first)), unanswered(_flat(first), limit, kept=kept)]
    if looks == BOTH:
        judges = {way.name: _flat(judged[way.name]) for way in ways if way.asks_model}
        result |= _compared(_flat(first), judges, seed, limit)
        failures += map(nobody_audited, judges.values())
        failures += (unanswered(rows, limit, kept=kept) for rows in judges.values())
    return result, next((one for one in failures if one is not None), None)


def unanswered(rows: Sequence[AuditRow], max_unaudited: float, *, kept: bool) -> RunFailed | None:
    """The failure of an audit without shares of looks because a model gave no reply; otherwise None.

    Also None if there would be no shares even with all replies.

    Args:
        rows: What `audit` returned.
        max_unaudited: See `vtune.metrics.faithfulness.faithfulness`.
        kept: Whether replies are stored, so that another audit only asks for missing ones.
    """
    scored = [row for row in rows if row.correct is not None]
    users = [row for row in scored if row.calls]
    silent = [row for row in users if row.silent]
    replied = [replace(row, any_faithful=False) if row.silent else row for row in scored]
    if not too_few_audited(scored, max_unaudited) or too_few_audited(replied, max_unaudited):
        return None
    return RunFailed(
        f"no shares of looks: the judge gave no reply about {len(silent)} of {len(users)} trajectories with "
        "tool calls",
        where=Counter(row.why for row in silent).most_common(1)[0][0],
        fix="run the same command again once the judge replies"
        + (": only questions without a reply are asked" if kept else ""),
    )


def _check_judged(rows: Sequence[AuditRow], reward: RewardRecipe, path: Path, without: WithoutLook) -> None:
    drawn_in = without.by_environment
    if not rows and drawn_in and DEFAULT not in drawn_in:
        raise DataError(
            f"no trajectory has a look: what the policy does in {_listed(drawn_in)} is an act",
            where=str(path),
            fix="use `vtune report` and `vtune show`, which report what the acts achieved; only tool "
            "calls in rows that name no environment can be faithful or not",
        )
    if not rows:
        levels = reward.evidence
        raise DataError(
            "no trajectory answers a question that needs a look: none has boxes, and neither its ability nor "
            "its source is named",
            where=str(path),
            fix="name the data's abilities or sources in reward.evidence, then generate the "
            f"trajectories again: search_abilities is [{', '.join(levels.search_abilities)}], "
            f"search_sources [{', '.join(levels.search_sources)}]",
        )
    check_scored(rows, reward.max_unscored)


def _listed(environments: Iterable[str]) -> str:
    names = [f"`{name}`" for name in sorted(environments)]
    return f"environment{'s' if len(names) > 1 else ''} {', '.join(names)}"


def _results(
    rows: Mapping[str, list[AuditRow]], models: Sequence[str], seed: int, limit: float
) -> dict[str, Any]:
    """The findings of one way to judge, over all files and for each."""
    everything = _flat(rows)
    judged_by = judges_of(everything)
    return {
        "judged_by": judged_by,
        "note": comparison(judged_by, models),
        "unscored": dict(unscored_reasons(everything)[:REASONS]),
        **_numbers(everything, seed, limit),
        "calls": {
            name: asdict(one) for name, one in calls_of(everything, seed=seed, max_unaudited=limit).items()
        },
        "files": {
            name: asdict(faithfulness(part, seed=seed, max_unaudited=limit))
            for name, part in rows.items()
            if part
        },
    }


def _compared(
    by_boxes: Sequence[AuditRow], judges: Mapping[str, list[AuditRow]], seed: int, limit: float
) -> dict[str, Any]:
    """The models' findings, their agreement with boxes, and how far each can be trusted."""
    if len(judges) > 1:
        judges = {**judges, MAJORITY: together(list(judges.values()))}
    last = judges[list(judges)[-1]]
    calibrated = against_boxes(by_boxes, judges, seed=seed)
    return {
        "by_model": _numbers(last, seed, limit),
        "agreement": asdict(agreed(by_boxes, last)),
        "by_rule": by_rule(last),
        "judges": {name: asdict(one) for name, one in calibrated.items()},
    }


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


def _with_chance(rows: Mapping[str, Sequence[AuditRow]], levels: EvidenceLevels) -> dict[str, list[AuditRow]]:
    """The rows of all files with their chance level, for which questions are sampled from all files."""
    known = iter(with_chance(_flat(rows), levels))
    return {name: list(islice(known, len(part))) for name, part in rows.items()}


def _flat(rows: Mapping[str, Sequence[AuditRow]]) -> list[AuditRow]:
    return [row for part in rows.values() for row in part]


async def _audit(
    audited: Audited,
    ways: Sequence[Way],
    caches: Sequence[Path | None],
    takers: Sequence[Taker],
    *,
    every: bool,
) -> dict[str, dict[str, list[AuditRow]]]:
    """For each way to judge, and for `BASE`, audit rows by `_name_of`; only one portion is in memory at a
    time.

    The base is the first way, or the majority if all ways are models. People's labels and re-runs are
    compared with it.
    """
    samples = samples_of(audited)
    names = [BASE, *(way.name for way in ways)]
    found = {name: {_name_of(file): list[AuditRow]() for file in audited.files} for name in names}
    votes = len(ways) > 1 and all(way.asks_model for way in ways)
    gone: set[str] = set()
    total = sum(map(count_rows, audited.files))
    begun: Counter[Path] = Counter()
    async with AsyncExitStack() as stack:
        opened = [
            Scorer(way.reward, judge_cache=cache, purse=way.purse)
            for way, cache in zip(ways, caches, strict=True)
        ]
        scorers = [await stack.enter_async_context(scorer) for scorer in opened]
        progress = stack.enter_context(Rows("audit", total=total, brief=True))
        for file, portion in _portions(audited.files):
            gone |= unknown_tools(portion)
            scored = await _scored(samples, portion, scorers[0])
            asked = [samples[t.sample_id] for t in scored]
            audits = [
                await audit(asked, scored, scorer.judges.by(way.only), every=every)
                for way, scorer in zip(ways, scorers, strict=True)
            ]
            base = together(audits) if votes else audits[0]
            for name, rows in zip(names, (base, *audits), strict=True):
                found[name][_name_of(file)] += rows
            stored = list(stored_audits((file, begun[file]), scored, base, samples, scorers[0].judges.levels))
            begun[file] += len(scored)
            for taker in takers:
                taker.take(stored)
            progress.advance(len(scored))
    warn_of(gone)
    return found


def _name_of(file: Path) -> str:
    """The file's name without its rank: intervals are over all trajectories of a step."""
    return _RANK.sub("", file.name)


def _portions(files: Sequence[Path]) -> Iterator[tuple[Path, list[Trajectory]]]:
    for file in files:
        for portion in portions(read_trajectories(file), rows=ROWS, size=BYTES):
            yield file, portion


async def _scored(
    samples: dict[str, Sample], portion: Sequence[Trajectory], scorer: Scorer
) -> list[Trajectory]:
    """The trajectories, scoring those that were never scored."""
    if strangers := {t.sample_id for t in portion} - set(samples):
        raise DataError(
            f"no sample has the id {min(strangers)!r}", fix="name the samples' Parquet file with --data"
        )
    asked = [samples[name] for name in dict.fromkeys(t.sample_id for t in portion)]
    missing = iter(await scorer.score(asked, [t for t in portion if t.reward is None]))
    return [t if t.reward is not None else next(missing) for t in portion]
