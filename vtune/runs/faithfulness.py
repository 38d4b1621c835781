"""`vtune faithfulness`: CodeV's algorithm 1 over stored trajectories."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from vtune.config import find, load_recipe
from vtune.errors import DataError
from vtune.judge.client import JudgeEndpoint
from vtune.metrics.faithfulness import faithfulness
from vtune.reward.audit import AuditRow, audit, check_audited, unscored_reasons
from vtune.reward.recipe import RewardRecipe
from vtune.reward.score import Scorer
from vtune.runs.eval import EvalSuite
from vtune.runs.rl import RLRecipe
from vtune.schema.parquet import read_samples, read_trajectories
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory

SEED = 0
"""Of the bootstrap where no run says one: the same trajectories give the same intervals."""

API_KEY = "OPENAI_API_KEY"
"""The environment variable with the key of a judge that the command line names; many local ones want none."""

REASONS = 5
"""Of unscored trajectories, how many reasons are told."""

AT_ONCE = 256
"""Trajectories that are in memory at the same time."""


@dataclass(frozen=True, slots=True)
class _Audited:
    """Where trajectories are, what they are about and how they are judged."""

    files: tuple[Path, ...]
    data: tuple[Path, ...]
    reward: RewardRecipe
    seed: int
    """Of the bootstrap: the run's own, so that an audit repeats what an evaluation said."""
    settings: str
    """The file that both were read from."""


def run_faithfulness(
    path: Path, data: Sequence[Path], *, judge_url: str | None = None, judge_model: str | None = None
) -> dict[str, Any]:
    """Audit what the tool calls of stored trajectories showed.

    Args:
        path: The folder of an `rl` or `eval` run, or a Parquet file of trajectories. A file outside of such a
            folder is judged by the levels of the shipped recipe `codev`.
        data: The samples that the trajectories answer; the run's own where it is empty.
        judge_url: An OpenAI-compatible endpoint that judges samples without evidence boxes.
        judge_model: The model's name there.

    Returns:
        `all` and `sources`: algorithm 1 with both denominators, shares, buckets and intervals; `files`,
        with the same numbers for each file of a training run; `settings`; `unscored`, the commonest reasons
        why trajectories were left out, with their numbers.

    Raises:
        DataError: If there are no trajectories, or the samples they answer are not found.
        RunFailed: If a larger share of them than `reward.max_unscored` is unscored.
    """
    audited = _locate(path, tuple(data))
    if judge_url and judge_model:
        judge = JudgeEndpoint(
            base_url=judge_url,
            model=judge_model,
            temperature=0.0,  # CodeV's evaluation script, as are the tokens
            max_tokens=500,
            concurrency=16,
            retries=5,
            timeout_s=60.0,
            api_key_env=API_KEY if API_KEY in os.environ else None,
        )
        reward = audited.reward.model_copy(update={"judge": judge})
    else:
        reward = audited.reward
    rows = asyncio.run(_audit(audited, reward))
    everything = [row for part in rows.values() for row in part]
    if not everything:
        raise DataError(
            "no trajectory answers a question that needs a look",
            where=str(path),
            fix="faithfulness is about searches: `search_abilities` and `search_sources` of the recipe",
        )
    check_audited(everything, reward.max_unscored)
    sources = sorted({row.source for row in everything})
    return {
        "path": str(path),
        "settings": audited.settings,
        "unscored": dict(unscored_reasons(everything)[:REASONS]),
        "all": asdict(faithfulness(everything, seed=audited.seed)),
        "sources": {
            source: asdict(
                faithfulness([row for row in everything if row.source == source], seed=audited.seed)
            )
            for source in sources
        },
        "files": {name: asdict(faithfulness(part, seed=audited.seed)) for name, part in rows.items() if part},
    }


def _locate(path: Path, data: tuple[Path, ...]) -> _Audited:
    if not path.exists():
        raise DataError(f"there is no file or folder {path}", fix="give a run folder or a Parquet file")
    folder = path if path.is_dir() else path.parent
    if path.is_dir():
        files = tuple(sorted(path.glob("trajectories/*.parquet"))) or tuple(path.glob("trajectories.parquet"))
    else:
        files = (path,)
    if not files:
        raise DataError(
            "there are no trajectories", where=str(path), fix="give a folder of `vtune rl` or `vtune eval`"
        )
    for settings in (folder / "suite.yaml", folder / "recipe.yaml", folder.parent / "recipe.yaml"):
        if settings.is_file():
            suite = settings.name == "suite.yaml"
            recipe = load_recipe(settings, EvalSuite) if suite else load_recipe(settings, RLRecipe)
            return _Audited(
                files, data or tuple(map(Path, recipe.data)), recipe.reward, recipe.seed, str(settings)
            )
    if not data:
        raise DataError(
            "it is not known which samples these trajectories answer",
            where=str(path),
            fix="name their Parquet file with --data",
        )
    shipped = find("codev", "recipes.rl")
    return _Audited(files, data, load_recipe(shipped, RLRecipe).reward, SEED, "the shipped recipe codev")


async def _audit(audited: _Audited, reward: RewardRecipe) -> dict[str, list[AuditRow]]:
    """Audit rows by file name, reading a portion of trajectories at a time."""
    samples: dict[str, Sample] = {sample.id: sample for path in audited.data for sample in read_samples(path)}
    found: dict[str, list[AuditRow]] = {}
    async with Scorer(reward) as scorer:
        for file in audited.files:
            rows = found.setdefault(file.name, [])
            portion: list[Trajectory] = []
            for trajectory in read_trajectories(file):
                portion.append(trajectory)
                if len(portion) == AT_ONCE:
                    rows += await _audit_portion(samples, portion, scorer)
                    portion = []
            rows += await _audit_portion(samples, portion, scorer)
    return found


async def _audit_portion(
    samples: dict[str, Sample], portion: Sequence[Trajectory], scorer: Scorer
) -> list[AuditRow]:
    if strangers := {t.sample_id for t in portion} - set(samples):
        raise DataError(
            f"no sample has the id {min(strangers)!r}", fix="name the samples' Parquet file with --data"
        )
    asked = [samples[name] for name in dict.fromkeys(t.sample_id for t in portion)]
    scored = [t if t.reward is not None else None for t in portion]
    missing = await scorer.score(asked, [t for t in portion if t.reward is None])
    filled = iter(missing)
    return await audit(asked, [t if t is not None else next(filled) for t in scored], scorer.judges)
