"""Evaluation: a rollout without an update."""

import asyncio
import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from vtune.config import differing_keys, dump_recipe
from vtune.errors import RecipeError
from vtune.files.json_text import read_record
from vtune.files.writing import write_atomically
from vtune.metrics.benchmarks import Mark
from vtune.metrics.by_source import by_source
from vtune.metrics.faithfulness import faithfulness
from vtune.models.policy import resolved
from vtune.report.progress import Steps, say
from vtune.reward.audit import AuditRow, audit, check_audited, judges_of
from vtune.reward.checking import check_unscored
from vtune.reward.recipe import RewardRecipe
from vtune.reward.score import Scorer
from vtune.rollout.agent import Agent, Job, black
from vtune.runs.agent.engines import Kind, check_vllm
from vtune.runs.agent.judge import check_judge, check_summariser
from vtune.runs.agent.opening import load_fixed, open_fixed
from vtune.runs.agent.served import check_model, endpoint_facts, kind_of
from vtune.runs.evaluate.grading import graded, mark_of, rule_of, scores_of, with_fallback
from vtune.runs.evaluate.items import by_question
from vtune.runs.evaluate.questions import (
    Question,
    check_questions,
    fingerprints,
    read_questions,
    without_pictures,
)
from vtune.runs.evaluate.suite import EvalSuite, check_published
from vtune.runs.evaluate.windows import Window, drawn, drop_unscored, part, parts, portions, slim, windows
from vtune.runs.folder import MAY_CHANGE, check_folder, check_uses, environment, keep_uses
from vtune.schema.parquet import read_trajectories, write_trajectories
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory
from vtune.uses import prints as using

AUDITED_ROWS, AUDITED_BYTES = 256, 128 * 2**20
"""Trajectories, and bytes of their pictures, that are in memory for an audit; ours."""

STARTED = "started.json"
"""What was asked, for as long as the evaluation is unfinished."""


def check_eval(suite: EvalSuite, model: str, *, limit: int | None = None) -> dict[str, Any]:
    """Everything that can be known before weights are loaded.

    Raises:
        VtuneError: With the problems found.
    """
    thresholds_of(suite.reward)
    check_model(model, suite.openai, suite.rollout)
    check_published(suite)
    found = check_questions(suite, suite.reward, suite.tools, prompt=suite.rollout.prompt, limit=limit)
    check_judge(suite.reward, answers=found.judged_answers, looks=found.judged_looks)
    check_summariser(suite.tools)
    return {"samples": found.count, "rollouts": found.count * suite.rollouts}


def run_eval(
    suite: EvalSuite,
    model: str,
    out: Path,
    *,
    limit: int | None,
    kind: Kind = "transformers",
    resume: bool = False,
) -> dict[str, Any]:
    """Roll out, score and audit; `results.json`, `items.jsonl`, `suite.yaml` and `trajectories.parquet` go to
    `out`.

    Trajectories are written in portions to `out/trajectories` while they are drawn, and put together at the
    end; `results.json` comes last. An evaluation that was interrupted goes on after the last portion.

    Args:
        suite: What to measure and how.
        model: Folder or hub name, or `openai:URL#model`.
        out: Folder for the results; must not hold any.
        limit: Use only the first samples; the result says so.
        kind: What draws; the result says so.
        resume: Continue what was begun in `out`; of what is finished, the results are given back.

    Returns:
        What `results.json` holds: the score by the suite's rule, faithfulness over all (`judged_by`: how many
        trajectories with calls boxes and a model have judged; `unaudited`: how many, with or without calls,
        nobody could judge, for there are no boxes and no judge), numbers by source, the suite.

    Raises:
        RecipeError: If `out` holds results or a part of an evaluation and `resume` was not asked, or the
            other way round, or that evaluation is another one.
    """
    check_folder(out)
    suite = judged_as_shown(suite)
    # As the link stands now: `newest` may move while this goes on, and before it is asked for again.
    model = resolved(model)
    kind = kind_of(model, kind)
    if kind == "vllm":
        check_vllm()
        if suite.rollout.temperature not in (0.0, 1.0):
            raise RecipeError(
                f"rollout.temperature is {suite.rollout.temperature}",
                fix="vllm gives log-probabilities of what it draws from: set 0 or 1, or leave out --vllm",
            )
    if (out / "results.json").exists():
        if not resume:
            raise RecipeError(
                f"{out} holds results already", fix="choose another --out; --resume gives them back"
            )
        return _finished(suite, model, out, limit, kind)
    count = check_eval(suite, model, limit=limit)["samples"]
    prints = fingerprints(suite)
    _start(suite, out, _asked(suite, model, limit, kind, prints), resume=resume)
    asked = _Evaluation(suite=suite, model=model, out=out, limit=limit, kind=kind, count=count, prints=prints)
    return asyncio.run(_evaluate(asked))


def judged_as_shown(suite: EvalSuite) -> EvalSuite:
    """The suite; where we blacken what calls return, they are judged by what they would have shown."""
    if suite.call_images == "shown":
        return suite
    evidence = suite.reward.evidence.model_copy(update={"looks": "claimed"})
    return suite.model_copy(update={"reward": suite.reward.model_copy(update={"evidence": evidence})})


def _asked(
    suite: EvalSuite, model: str, limit: int | None, kind: Kind, prints: Mapping[str, str]
) -> dict[str, Any]:
    """All that an evaluation is known by."""
    return {
        "model": model,
        "limit": limit,
        "engine": kind,
        "suite": suite.model_dump(mode="json"),
        "data": dict(prints),
    } | ({"uses": using()} if using() else {})


def _finished(suite: EvalSuite, model: str, out: Path, limit: int | None, kind: Kind) -> dict[str, Any]:
    """The results that a folder holds, if they are of the same evaluation: nothing is left to do."""
    result = read_record(
        out / "results.json",
        "model",
        "suite",
        "environment",
        fix="the evaluation wrote it; restore it",
    )
    before = {
        "model": result["model"],
        "limit": result.get("limit"),
        "engine": result.get("engine"),
        "suite": result["suite"],
        "data": result["environment"]["data"],
    } | ({"uses": result["environment"]["uses"]} if "uses" in result["environment"] else {})
    _check_same(before, _asked(suite, model, limit, kind, fingerprints(suite)), out)
    say(f"{out} is finished: nothing is left to do")
    return result


def _check_same(before: dict[str, Any], now: dict[str, Any], out: Path) -> None:
    check_uses(before.get("uses", {}), out)
    before = before | {"suite": suite_as_today(before["suite"], now["suite"])}
    changed = [key for key in differing_keys(before, now) if key.removeprefix("suite.") not in MAY_CHANGE]
    if changed:
        raise RecipeError(
            f"this is not the evaluation that {out} began with; it differs in {', '.join(changed)}",
            fix=f"see {out / 'suite.yaml'}, or start a new one with another --out",
        )


def suite_as_today(stored: Any, now: Mapping[str, Any]) -> Any:
    """A stored suite with the keys that are younger than it, at what they meant before they were there.

    Args:
        stored: As it was written.
        now: What it is compared with; a stored suite that has no `kind` of question is of that one.
    """
    try:
        stored = {"kind": now.get("kind")} | stored
        return EvalSuite.model_validate(stored).model_dump(mode="json")
    except ValidationError:
        return stored


def _start(suite: EvalSuite, out: Path, now: dict[str, Any], *, resume: bool) -> None:
    """Begin a folder, or prove that it holds the first part of the same evaluation."""
    file, written = out / STARTED, out / "suite.yaml"
    if not resume:
        if file.exists():
            raise RecipeError(
                f"{out} holds an unfinished evaluation",
                fix="continue it with --resume, choose another --out, or remove it",
            )
        out.mkdir(parents=True, exist_ok=True)
        write_atomically(written, dump_recipe(keep_uses(suite, out)))
        write_atomically(file, json.dumps(now, indent=2) + "\n")
        return
    if not file.exists():
        raise RecipeError(f"{out} holds no evaluation to resume", fix="start it without --resume")
    before = read_record(file, fix="the evaluation wrote it; restore it, or start a new one")
    _check_same(before, now, out)
    write_atomically(written, dump_recipe(keep_uses(suite, out)))
    drop_unscored(out / "trajectories")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evaluation:
    """What is measured, where, and how much of it."""

    suite: EvalSuite
    model: str
    out: Path
    limit: int | None
    kind: Kind
    count: int
    """Questions."""
    prints: Mapping[str, str]
    """SHA-256 of the data, by file."""

    @property
    def portions(self) -> Path:
        """Folder of what is drawn, for as long as the evaluation is unfinished."""
        return self.out / "trajectories"

    @property
    def total(self) -> int:
        """Rollouts."""
        return self.count * self.suite.rollouts


async def _evaluate(asked: _Evaluation) -> dict[str, Any]:
    suite, out = asked.suite, asked.out
    policy = load_fixed(suite, asked.model, kind=asked.kind)
    began = time.monotonic()
    look = black if suite.call_images == "black" else None
    async with (
        open_fixed(suite, policy, asked.model, out, kind=asked.kind, observation_transform=look) as agent,
        Scorer(suite.reward, judge_cache=out / "judge.jsonl", shown=policy.pictures.shown_size) as scorer,
    ):
        records = await _draw(asked, agent, scorer)
        everything = parts(asked.portions)
        judged = await _judge(suite, everything, records, scorer)
    # A judge that failed may be repaired; where nobody can judge, the numbers say so.
    check_audited([row for row in judged.rows if row.by is not None], suite.reward.max_unscored)
    _put_together(everything, out / "trajectories.parquet")
    result = _result(asked, judged) | {"seconds": time.monotonic() - began}
    write_atomically(out / "results.json", json.dumps(result, indent=2) + "\n")
    shutil.rmtree(asked.portions)
    (out / STARTED).unlink()
    return result


async def _draw(asked: _Evaluation, agent: Agent, scorer: Scorer) -> dict[str, Sample]:
    """Draw, score and write what is missing, a window after the other; returns all samples, by id."""
    suite, total, rule = asked.suite, asked.total, rule_of(asked.suite)
    done = drawn(asked.portions, rollouts=suite.rollouts)
    records: dict[str, Sample] = {}
    seen: list[Trajectory] = []
    with Steps("eval", total, done=sum(done.values()) * suite.rollouts) as progress:
        for window in windows(_noted(asked, records), rollouts=suite.rollouts, done=done):
            scored = await scorer.score(
                [sample for sample, _ in window.questions],
                await agent.run(_jobs(suite, window), progress.advance),
                iou=thresholds_of(suite.reward),
            )
            scored = [graded(t, records[t.sample_id], rule, suite.reward) for t in scored]
            seen += map(slim, scored)
            if sum(map(_unscored, seen)) > suite.reward.max_unscored * total:
                check_unscored(seen, suite.reward.max_unscored)
            write_trajectories(part(asked.portions, window.first), scored, run=asked.out)
            del window, scored  # before the next is read
    return records


def _noted(asked: _Evaluation, records: dict[str, Sample]) -> Iterator[Question]:
    """The questions, each noted in `records` without its pictures."""
    for sample, images in read_questions(asked.suite, limit=asked.limit):
        records[sample.id] = without_pictures(sample)
        yield sample, images


def _result(asked: _Evaluation, judged: "_Judged") -> dict[str, Any]:
    suite = asked.suite
    everything = faithfulness(judged.rows, seed=suite.seed, max_unaudited=suite.reward.max_unscored)
    return {
        "model": asked.model,
        "samples": asked.count,
        "limit": asked.limit,
        "engine": asked.kind,
        "rollouts": asked.total,
        "score": scores_of(suite.scorer, judged.marks, judged.fallbacks),
        **by_question(judged.marks, asked.out),
        "sources": by_source(judged.trajectories, evidence_score=suite.reward.evidence.full),
        "faithfulness": asdict(everything),
        "judged_by": judges_of(judged.rows),
        "unaudited": sum(row.by is None for row in judged.rows),
        "suite": suite.model_dump(mode="json"),
        "environment": environment(asked.prints),
        **endpoint_facts(asked.model, suite.openai, asked.out),
    }


def thresholds_of(reward: RewardRecipe) -> tuple[float, ...]:
    """The IoU thresholds of a suite.

    Raises:
        RecipeError: If they would change in the course of a run.
    """
    if reward.iou is None:
        return ()
    if reward.iou.schedule not in ("fixed", "average"):
        raise RecipeError(
            f"reward.iou.schedule is {reward.iou.schedule}, and an evaluation has no course",
            fix="set it to fixed, with one threshold, or to average",
        )
    return reward.iou.thresholds


def _jobs(suite: EvalSuite, window: Window) -> list[Job]:
    return [
        Job(
            sample=sample,
            images=images,
            group=number,
            rollout=rollout,
            policy_version=0,
            key=(suite.seed, 0, number, rollout),
        )
        for number, (sample, images) in enumerate(window.questions, start=window.first)
        for rollout in range(suite.rollouts)
    ]


@dataclass(frozen=True, slots=True)
class _Judged:
    """What was found out about all trajectories."""

    rows: list[AuditRow] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    fallbacks: list[Mark] = field(default_factory=list)
    """The same by the protocol's own fallback."""
    trajectories: list[Trajectory] = field(default_factory=list)
    """Without pictures and tokens."""


async def _judge(
    suite: EvalSuite, files: Sequence[Path], records: Mapping[str, Sample], scorer: Scorer
) -> _Judged:
    found = _Judged()
    for group in portions(_stored(files), rows=AUDITED_ROWS, size=AUDITED_BYTES):
        asked = [records[t.sample_id] for t in group]
        found.rows.extend(await audit(asked, group, scorer.judges))
        shown = [scorer.with_shown_size(sample, t) for t, sample in zip(group, asked, strict=True)]
        marks = [mark_of(t, sample) for t, sample in zip(group, shown, strict=True)]
        found.marks.extend(marks)
        found.fallbacks.extend(with_fallback(mark, t) for mark, t in zip(marks, group, strict=True))
        found.trajectories.extend(map(slim, group))
    return found


def _put_together(files: Sequence[Path], out: Path) -> None:
    """All portions in one file; they stay until the results are written."""
    write_trajectories(out, _stored(files), run=out.parent)


def _stored(files: Sequence[Path]) -> Iterator[Trajectory]:
    return chain.from_iterable(map(read_trajectories, files))


def _unscored(trajectory: Trajectory) -> bool:
    return trajectory.reward is None or trajectory.reward.total is None
