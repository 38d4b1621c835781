"""Evaluation: a rollout without an update."""

import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vtune.files.writing import check_folder_output, write_atomically
from vtune.metrics.benchmarks import Mark, Scores
from vtune.metrics.by_source import by_source
from vtune.models.served import is_scripted
from vtune.models.shape import find_shape
from vtune.models.source import resolved
from vtune.report.progress import Steps, say
from vtune.reward.audit import AuditRow, audit, check_audited
from vtune.reward.score import Scorer
from vtune.rollout.agent import Agent, black
from vtune.rollout.blocking import to_end
from vtune.runs.agent.judge import check_judge, check_summariser
from vtune.runs.agent.kinds import Kind, check_devices, check_temperature, check_tensor_parallel, check_vllm
from vtune.runs.agent.opening import load_fixed, open_fixed
from vtune.runs.agent.served import check_model, check_script, endpoint_facts, kind_of, script_facts
from vtune.runs.agent.tools import check_asking, check_encoders
from vtune.runs.evaluate.asked_before import check_asked_before
from vtune.runs.evaluate.audited import audit_facts, audit_portions
from vtune.runs.evaluate.checking import Checked, check_questions
from vtune.runs.evaluate.deferred import check_deferred, judge_deferred
from vtune.runs.evaluate.drawing import check_scores, draw_window
from vtune.runs.evaluate.finished import RESULTS, TRAJECTORIES
from vtune.runs.evaluate.grading import (
    mark_of,
    rule_of,
    scores_of,
    thresholds_of,
    with_fallback,
    with_grade,
    with_model,
)
from vtune.runs.evaluate.identity import STARTED, asked_of, begin, check_new, finished_before
from vtune.runs.evaluate.items import ITEMS, by_question
from vtune.runs.evaluate.judged import BATCH as GRADER_BATCH
from vtune.runs.evaluate.judged import Graded, check_grader, check_grader_answers
from vtune.runs.evaluate.lengths import check_question_lengths
from vtune.runs.evaluate.questions import (
    Question,
    fingerprints,
    read_questions,
    read_records,
    without_pictures,
)
from vtune.runs.evaluate.rejudged import BATCH as JUDGE_BATCH
from vtune.runs.evaluate.rejudged import judge_prompts
from vtune.runs.evaluate.reopened import replacing, withdraw
from vtune.runs.evaluate.revisions import revisions
from vtune.runs.evaluate.rollout_files import forget, forget_all, kept
from vtune.runs.evaluate.suite import EvalSuite, check_complete, check_published
from vtune.runs.evaluate.unasked import warn_of_repeats, warn_of_unasked, warn_of_unshown
from vtune.runs.evaluate.unjudged import check_silent
from vtune.runs.evaluate.windows import drawn, part, parts, slim, stored, waits, windows
from vtune.runs.folder import environment
from vtune.runs.interpreter import responsive
from vtune.runs.start import locked
from vtune.schema.parquet import write_trajectories
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory


def check_eval(
    suite: EvalSuite, model: str, *, limit: int | None = None, own_data: bool = False
) -> dict[str, Any]:
    """Check everything that can be checked before weights are loaded; see `run_eval`.

    Raises:
        VtuneError: Lists the problems found.
    """
    found = _checked(suite, model, limit, own_data=own_data)
    return {"samples": found.count, "rollouts": found.count * suite.rollouts}


def _checked(
    suite: EvalSuite, model: str, limit: int | None, *, own_data: bool = False, warned: bool = False
) -> Checked:
    thresholds_of(suite.reward)
    check_model(model, suite.openai, suite.rollout)
    check_published(suite)
    check_grader(rule_of(suite), suite.grader, suite.protocol)
    found = check_questions(suite, limit=limit)
    if limit is None and not own_data:
        check_complete(suite, found.count)
    check_question_lengths(suite, model, count=found.count)
    if not warned:
        warn_of_unasked(suite, model, count=found.count)
        warn_of_unshown(found.unshown)
    check_grader_answers(rule_of(suite), suite.grader, suite.protocol)
    check_deferred(suite, looks=found.judged_looks)
    answers, _ = found.asked.asked_here(suite.reward)
    check_judge(suite.reward, answers=answers, looks=found.judged_looks)
    check_asking(suite.tools)
    check_summariser(suite.tools)
    if is_scripted(model):
        asked = [sample.id for sample, _ in zip(read_records(suite), range(found.count), strict=False)]
        check_script(model, asked, suite.rollouts, silent=warned or limit is not None)
    elif not warned:
        warn_of_repeats(suite)
    return found


def plan_eval(
    suite: EvalSuite, model: str, *, limit: int | None, kind: Kind, own_data: bool = False
) -> dict[str, Any]:
    """What `--dry-run` reports: checks everything that `run_eval` checks before rollouts; nothing is written.

    Returns:
        `samples` and `rollouts`, their numbers; `protocol`, `agent` and `scorer` as resolved.

    Raises:
        VtuneError: Lists the problems found.
    """
    suite = blocking(judged_as_shown(suite))
    model = resolved(model)
    _check_kind(suite, model, kind_of(model, kind, questions=True))
    found = check_eval(suite, model, limit=limit, own_data=own_data)
    return found | {"protocol": suite.protocol, "agent": suite.agent, "scorer": suite.scorer}


def _check_kind(suite: EvalSuite, model: str, kind: Kind) -> None:
    """Check that the engine can generate on the requested number of GPUs.

    Raises:
        MissingExtra: If it is vLLM and vLLM is not installed.
        RecipeError: If vLLM cannot return log-probabilities for the temperature, or the model cannot be split
            over the GPUs, or there are too few.
    """
    check_encoders(suite.tools)
    gpus = suite.rollout.tensor_parallel
    found = find_shape(model, None) if gpus > 1 and kind == "vllm" else None
    check_tensor_parallel(gpus, found and found[0], kind=kind)
    if kind != "vllm":
        return
    check_vllm()
    check_devices(gpus)
    check_temperature(suite.rollout.temperature, remedy="set 0 or 1, or leave out --vllm")


def run_eval(
    suite: EvalSuite,
    model: str,
    out: Path,
    *,
    limit: int | None,
    kind: Kind = "transformers",
    resume: bool = False,
    own_data: bool = False,
    warned: bool = False,
) -> dict[str, Any]:
    """Roll out, score and audit; write `results.json`, `items.jsonl`, `suite.yaml` and `trajectories.parquet`
    to `out`.

    Trajectories are written in portions to `out/trajectories` as they are generated, and merged at the end;
    `results.json` comes last. An interrupted evaluation continues after the last rollout that ended: those of
    the open portion are in `out/ended`.

    Args:
        suite: What to measure and how.
        model: Folder or hub name, `openai:URL#model`, or `scripted:FILE`.
        out: Folder for the results; must not hold any.
        limit: Use only the first samples; the result says so.
        kind: The engine that generates; the result says so.
        resume: Continue what was begun in `out`; if it is finished, return its results, after asking the
            grader again about replies for which it returned nothing readable.
        own_data: The data are not those that the suite names, and may have fewer rows than published.
        warned: The warnings about the suite were already printed, by `plan_eval`.

    Returns:
        The content of `results.json`: the score by the suite's rule, faithfulness over all (`judged_by`: how
        many trajectories with calls were judged by boxes and by a model; `unaudited`: how many, with or
        without calls, could not be judged for lack of boxes and a judge), numbers by source, the suite;
        `seconds` of this session only.

    Raises:
        RecipeError: If `out` holds results or part of an evaluation without `resume`, or holds none or
            another one with it; or if another process is evaluating in `out`.
    """
    check_folder_output(out)
    suite = blocking(judged_as_shown(suite))
    # Resolved once: the link `newest` may move while this runs, and before it is resumed.
    model = resolved(model)
    kind = kind_of(model, kind, questions=True)
    if not resume:
        check_new(out)
    elif (out / "results.json").exists():
        finished = finished_before(suite, model, out, limit, kind)
        if finished is not None:
            return finished
    _check_kind(suite, model, kind)
    found = _checked(suite, model, limit, own_data=own_data, warned=warned)
    now = asked_of(suite, model, limit, kind, fingerprints(suite))
    asked = _Evaluation(suite=suite, model=model, out=out, limit=limit, kind=kind, found=found, now=now)
    with locked(out):
        begin(suite, out, now, total=asked.total, resume=resume)
        return to_end(_evaluate(asked), say)


def judged_as_shown(suite: EvalSuite) -> EvalSuite:
    """The suite; if calls return blackened pictures, looks are judged by what they would have shown."""
    if suite.call_images == "shown":
        return suite
    evidence = suite.reward.evidence.model_copy(update={"looks": "claimed"})
    return suite.model_copy(update={"reward": suite.reward.model_copy(update={"evidence": evidence})})


def blocking(suite: EvalSuite) -> EvalSuite:
    """The suite, with the pages that it blocks hidden from its tools."""
    if suite.tools is None or not suite.blocked_hosts:
        return suite

    def more(section: Any) -> Any:
        blocked = tuple(dict.fromkeys([*section.blocked, *suite.blocked_hosts]))
        return section.model_copy(update={"blocked": blocked})

    tools = suite.tools.model_copy(update={"web": more(suite.tools.web)})
    text = tools.text_search
    if text is not None and text.web is not None:
        tools = tools.model_copy(update={"text_search": text.model_copy(update={"web": more(text.web)})})
    return suite.model_copy(update={"tools": tools})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evaluation:
    """What is measured, where, and how much of it."""

    suite: EvalSuite
    model: str
    out: Path
    limit: int | None
    kind: Kind
    found: Checked
    """Counts from checking its questions."""
    now: Mapping[str, Any]
    """See `asked_of`."""

    @property
    def portions(self) -> Path:
        """Folder of generated portions while the evaluation is unfinished."""
        return self.out / "trajectories"

    @property
    def total(self) -> int:
        """Number of rollouts."""
        return self.found.count * self.suite.rollouts


async def _evaluate(asked: _Evaluation) -> dict[str, Any]:
    suite, out = asked.suite, asked.out
    policy = load_fixed(suite, asked.model, kind=asked.kind)
    began = time.monotonic()
    look = black if suite.call_images == "black" else None
    scoring = Scorer(suite.reward, judge_cache=out / "judge.jsonl", shown=policy.pictures.shown_size)
    opening = open_fixed(
        suite,
        policy,
        asked.model,
        out,
        kind=asked.kind,
        runs_code=asked.found.codes > 0,
        observation_transform=look,
        judges=scoring.judges,
    )
    async with scoring as scorer:
        async with opening as agent:
            with responsive():
                records = await _draw(asked, agent, scorer)
        everything = parts(asked.portions)
        if suite.reward.asks_in_batches:
            looks = asked.found.judged_looks > 0
            await judge_deferred(suite, out, everything, records, scorer, looks=looks)
        found = await with_model(suite, stored(everything), records, out)
        judged = await _judge(_final(asked, everything, records, found), records, scorer)
    silent = {(row.sample_id, row.rollout): row.why for row in judged.rows if row.silent}
    check_silent(out, silent, asked.total, what="verdict on what their calls show")
    # Other failures may still be fixed; if nothing can judge, the numbers say so.
    check_audited([row for row in judged.rows if row.by is not None], suite.reward.max_unscored)
    score = scores_of(suite.scorer, judged.marks, judged.fallbacks)
    with replacing(out) as files:
        write_trajectories(files[TRAJECTORIES], _final(asked, everything, records, found), run=out)
        result = _result(asked, judged, score, files[ITEMS])
        result |= _judge_of(asked, records, scorer) | found.as_result()
        result |= {"seconds": time.monotonic() - began}
        write_atomically(files[RESULTS], json.dumps(result, indent=2) + "\n", option=None)
        withdraw(out)
    (out / STARTED).unlink()
    shutil.rmtree(asked.portions)
    forget_all(out)
    for batches in (GRADER_BATCH, JUDGE_BATCH):  # from an earlier session that asked in batches
        (out / batches).unlink(missing_ok=True)
    return result


async def _draw(asked: _Evaluation, agent: Agent, scorer: Scorer) -> dict[str, Sample]:
    """Generate, score and write what is missing, window by window; return all samples by id."""
    suite, total = asked.suite, asked.total
    if suite.reward.asks_in_batches:
        scorer.put_off()
    done = drawn(asked.portions, rollouts=suite.rollouts)
    records: dict[str, Sample] = {}
    seen: list[Trajectory] = []
    begun = sum(done.values()) * suite.rollouts + kept(asked.out)
    if 0 < begun < total:
        check_asked_before(suite, asked.out, asked.portions, agent)
    with Steps("eval", total, done=begun) as progress:
        for window in windows(_noted(asked, records), rollouts=suite.rollouts, done=done):
            scored = await draw_window(suite, asked.out, window, agent, scorer, progress.advance)
            write_trajectories(part(asked.portions, window.first), scored, run=asked.out)
            numbers = range(window.first, window.first + len(window.questions))
            forget(asked.out, numbers, rollouts=suite.rollouts)
            seen += (slim(t) for t in scored if not waits(t) and not _is_put_off(asked, t, scorer))
            check_scores(suite, asked.out, scorer, seen, total)
            del window, scored  # before the next window is read
    if not suite.reward.asks_in_batches:
        check_silent(asked.out, scorer.silent, total)
    return records


def _is_put_off(asked: _Evaluation, trajectory: Trajectory, scorer: Scorer) -> bool:
    """Whether its score waits for a judge that is asked after all rollouts."""
    return asked.suite.reward.asks_in_batches and (trajectory.sample_id, trajectory.rollout) in scorer.silent


def _noted(asked: _Evaluation, records: dict[str, Sample]) -> Iterator[Question]:
    """The questions; each is added to `records` without its pictures."""
    for sample, images in read_questions(asked.suite, limit=asked.limit):
        records[sample.id] = without_pictures(sample)
        yield sample, images


def _result(asked: _Evaluation, judged: "_Judged", score: Scores, items: Path) -> dict[str, Any]:
    suite = asked.suite
    known = revisions(suite.data)
    return {
        "model": asked.model,
        "samples": asked.found.count,
        "limit": asked.limit,
        "engine": asked.kind,
        "rollouts": asked.total,
        "score": score,
        **by_question(judged.marks, items),
        "sources": by_source(judged.trajectories, evidence_score=suite.reward.evidence.full),
        **audit_facts(judged.rows, suite),
        "suite": suite.model_dump(mode="json"),
        "environment": environment(asked.now["data"], asked.now.get("indexes"))
        | ({"revisions": known} if known else {}),
        **endpoint_facts(asked.model, suite.openai, asked.out),
        **script_facts(asked.model),
    }


def _judge_of(asked: _Evaluation, records: Mapping[str, Sample], scorer: Scorer) -> dict[str, Any]:
    """Facts about the judge of the suite's reward for the results; empty if none was asked."""
    facts = scorer.judge_facts()
    prompts = judge_prompts(records.values(), asked.suite.reward, looks=asked.found.judged_looks > 0)
    return {"reward.judge": facts | {"prompts": prompts}} if facts else {}


@dataclass(frozen=True, slots=True)
class _Judged:
    """Findings about all trajectories."""

    rows: list[AuditRow] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    fallbacks: list[Mark] = field(default_factory=list)
    """The same marks with the protocol's own fallback."""
    trajectories: list[Trajectory] = field(default_factory=list)
    """Trajectories without pictures and tokens."""


def _final(
    asked: _Evaluation, files: Sequence[Path], records: Mapping[str, Sample], found: Graded
) -> Iterator[Trajectory]:
    """All trajectories, with a model's grades if one was asked."""
    reward = asked.suite.reward
    return (with_grade(t, records[t.sample_id], found, reward) for t in stored(files))


async def _judge(
    trajectories: Iterator[Trajectory], records: Mapping[str, Sample], scorer: Scorer
) -> _Judged:
    found = _Judged()
    for group in audit_portions(trajectories):
        asked = [records[t.sample_id] for t in group]
        found.rows.extend(await audit(asked, group, scorer.judges))
        shown = [scorer.with_shown_size(sample, t) for t, sample in zip(group, asked, strict=True)]
        marks = [mark_of(t, sample) for t, sample in zip(group, shown, strict=True)]
        found.marks.extend(marks)
        found.fallbacks.extend(with_fallback(mark, t) for mark, t in zip(marks, group, strict=True))
        found.trajectories.extend(map(slim, group))
    return found
