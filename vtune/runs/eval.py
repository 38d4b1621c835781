"""Evaluation: a rollout without an update. A suite is data with everything pinned that moves a score."""

import asyncio
import json
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import Field

from vtune.config import Strict, dump_recipe
from vtune.errors import DataError, RecipeError
from vtune.metrics.by_source import by_source
from vtune.metrics.faithfulness import faithfulness
from vtune.models.pictures import PixelBudget
from vtune.models.policy import Dtype, load_chat, load_policy
from vtune.report.progress import Steps
from vtune.reward.audit import audit, check_audited
from vtune.reward.recipe import RewardRecipe
from vtune.reward.score import Scorer, check_samples, check_unscored
from vtune.rollout.agent import Agent, Job, Rollout, black
from vtune.runs.data import check_data
from vtune.runs.engines import Kind, check_vllm, evaluation_engine
from vtune.runs.folder import check_folder, environment, write_whole
from vtune.runs.sandbox import SandboxRecipe, sandbox_of, say_tier
from vtune.schema.parquet import fingerprint, load_picture, read_samples, write_trajectories
from vtune.schema.sample import Sample


class EvalSuite(Strict):
    """A benchmark: its data, and every setting that its score depends on."""

    data: tuple[str, ...] = Field(min_length=1)
    seed: int
    rollouts: int = Field(gt=0)
    """Of each sample; a score is the mean over all."""
    images: PixelBudget
    call_images: Literal["shown", "black"]
    """`black`: what tools return is blackened before the policy sees it, to prove that it is used."""
    rollout: Rollout
    sandbox: SandboxRecipe
    reward: RewardRecipe
    dtype: Dtype
    threads: int = Field(gt=0)


def check_eval(suite: EvalSuite, model: str) -> dict[str, Any]:
    """Everything that can be known before weights are loaded.

    Raises:
        VtuneError: With the problems found.
    """
    _thresholds(suite.reward)
    load_chat(model)
    paths = [Path(name) for name in suite.data]
    check_data(paths)
    count = 0
    for path in paths:
        samples = list(read_samples(path))
        check_samples(samples, suite.reward)
        count += len(samples)
    return {"samples": count, "rollouts": count * suite.rollouts}


def run_eval(
    suite: EvalSuite, model: str, out: Path, *, limit: int | None, kind: Kind = "transformers"
) -> dict[str, Any]:
    """Roll out, score and audit; `results.json`, `suite.yaml` and `trajectories.parquet` go to `out`.

    Args:
        suite: What to measure and how.
        model: Folder or hub name.
        out: Folder for the results; must not hold any.
        limit: Use only the first samples; the result says so.
        kind: What draws; the result says so.

    Returns:
        What `results.json` holds: accuracy and faithfulness over all, numbers by source, the suite.
    """
    check_folder(out)
    check_eval(suite, model)
    if kind == "vllm":
        check_vllm()
        if suite.rollout.temperature not in (0.0, 1.0):
            raise RecipeError(
                f"rollout.temperature is {suite.rollout.temperature}",
                fix="vllm gives log-probabilities of what it draws from: set 0 or 1, or leave out --vllm",
            )
    if (out / "results.json").exists():
        raise RecipeError(f"{out} holds results already", fix="choose another --out")
    return asyncio.run(_evaluate(suite, model, out, limit, kind))


async def _evaluate(suite: EvalSuite, model: str, out: Path, limit: int | None, kind: Kind) -> dict[str, Any]:
    torch.set_num_threads(suite.threads)
    # With vLLM, only the tokenizer and the reader of pictures are needed here.
    on_gpu = torch.cuda.is_available() and kind == "transformers"
    device = torch.device("cuda" if on_gpu else "cpu")
    policy = load_policy(model, budget=suite.images, dtype=suite.dtype, device=device)
    began = time.monotonic()
    samples = _samples(suite, limit)
    engine = await evaluation_engine(
        kind,
        suite.rollout,
        policy,
        model=model,
        dtype=suite.dtype,
        threads=suite.threads,
        folder=out / "weights",
    )
    look = black if suite.call_images == "black" else None
    jobs = _jobs(suite, samples)
    async with (
        aclosing(engine),
        sandbox_of(suite.sandbox, sessions=suite.rollout.max_batch) as sandbox,
        Scorer(suite.reward, judge_cache=out / "judge.jsonl", shown=policy.pictures.shown_size) as scorer,
    ):
        say_tier(sandbox)
        agent = Agent(engine, sandbox, policy.chat, policy.pictures, suite.rollout, look)
        with Steps("eval", len(jobs)) as progress:
            drawn = await agent.run(jobs, progress.advance)
        records = [sample for sample, _ in samples]
        scored = await scorer.score(records, drawn, iou=_thresholds(suite.reward))
        check_unscored(scored, suite.reward.max_unscored)
        rows = await audit(records, scored, scorer.judges)
        check_audited(rows, suite.reward.max_unscored)
    write_trajectories(out / "trajectories.parquet", scored)
    write_whole(out / "suite.yaml", dump_recipe(suite))
    honest = asdict(faithfulness(rows, seed=suite.seed))
    sources = by_source(scored, evidence_score=suite.reward.evidence.full)
    result = {
        "model": model,
        "samples": len(samples),
        "limit": limit,
        "engine": kind,
        "rollouts": len(scored),
        "sources": sources,
        "faithfulness": honest,
        "suite": suite.model_dump(mode="json"),
        "environment": environment({name: fingerprint(Path(name)) for name in suite.data}),
        "seconds": time.monotonic() - began,
    }
    write_whole(out / "results.json", json.dumps(result, indent=2) + "\n")
    return result


def _thresholds(reward: RewardRecipe) -> tuple[float, ...]:
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


def _samples(suite: EvalSuite, limit: int | None) -> list[tuple[Sample, tuple[bytes, ...]]]:
    found: list[tuple[Sample, tuple[bytes, ...]]] = []
    for name in suite.data:
        for sample in read_samples(Path(name)):
            if limit is not None and len(found) >= limit:
                return found
            found.append(
                (sample, tuple(load_picture(picture, Path(name).parent) for picture in sample.images))
            )
    if not found:
        raise DataError("the suite has no sample", where=", ".join(suite.data))
    return found


def _jobs(suite: EvalSuite, samples: Sequence[tuple[Sample, tuple[bytes, ...]]]) -> list[Job]:
    return [
        Job(
            sample=sample,
            images=images,
            group=number,
            rollout=rollout,
            policy_version=0,
            key=(suite.seed, 0, number, rollout),
        )
        for number, (sample, images) in enumerate(samples)
        for rollout in range(suite.rollouts)
    ]
