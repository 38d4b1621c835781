"""Stored replies judged again for a suite's reward, by another judge or another grading."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path

from vtune.errors import ServiceError
from vtune.judge.client import JudgeClient
from vtune.judge.completions import NoVerdict
from vtune.judge.endpoint import BatchedEndpoint
from vtune.judge.graders import compare, prompts_hash
from vtune.judge.prompts import conclusions_hash, levels_hash, looks_hash
from vtune.protocols.protocol import Grade
from vtune.reward.combining import weights_of
from vtune.reward.recipe import RewardRecipe
from vtune.runs.evaluate.judged import Graded, check_judged
from vtune.runs.evaluate.unjudged import Key
from vtune.runs.evaluate.windows import portions
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory
from vtune.schema.verdict import Verdict
from vtune.verifiers import verifier_of
from vtune.verifiers.gradings import KEY, OURS
from vtune.verifiers.judge import ATTEMPTED
from vtune.verifiers.verifying import Verifying

CACHE = "judge.jsonl"
"""File in an evaluation's folder: the judge's replies by request."""
BATCH = "judge.batch.json"
"""File with its batches in progress."""
AT_ONCE, BYTES = 64, 128 * 2**20
"""Limits on replies, and on bytes of their pictures, in memory; ours."""


def answer_prompts(samples: Iterable[Sample]) -> str | None:
    """SHA-256 of the prompts with which a suite's judge compares answers; None if it compares none."""
    gradings = {sample.verifier_parm.get(KEY) or OURS for sample in samples if verifier_of(sample).asks_judge}
    return prompts_hash(gradings) if gradings else None


def judge_prompts(samples: Collection[Sample], reward: RewardRecipe, *, looks: bool) -> dict[str, str]:
    """SHA-256 of all prompts of a suite's judge.

    `answers`, if it compares answers; `conclusions`, if it compares thoughts with answers; `looks`, if it
    says what calls show; and `levels`, if looks are rewarded.

    Args:
        samples: Questions of the suite.
        reward: The suite's reward.
        looks: Whether it judges calls.
    """
    paid = looks and any(weights_of(sample, reward).tool for sample in samples)
    concludes = reward.consistency is not None and reward.consistency.by == "model"
    found = {
        "answers": answer_prompts(samples),
        "conclusions": conclusions_hash() if concludes else None,
        "looks": looks_hash() if looks else None,
        "levels": levels_hash() if paid else None,
    }
    return {name: digest for name, digest in found.items() if digest is not None}


async def judge_again(
    stored: Callable[[], Iterable[Trajectory]],
    samples: Mapping[str, Sample],
    judge: BatchedEndpoint,
    folder: Path,
    *,
    max_unscored: float,
) -> Graded:
    """The grades of stored replies whose verifier asks a judge.

    Args:
        stored: Reads all trajectories of an evaluation, with their pictures.
        samples: Id -> question, as judged.
        judge: Asked what has no reply in `folder`.
        folder: Where its replies are stored.
        max_unscored: See `check_judged`.

    Raises:
        RunFailed: As `check_judged`.
        RecipeError: If the environment variable with the API key is not set.
    """
    async with JudgeClient(judge, cache=folder / CACHE) as client, Verifying() as verifying:
        found = await _verdicts(stored, samples, client, verifying)
        facts = client.facts()
    graded = Graded(
        {key: _grade(one) for key, one in found.items() if isinstance(one, Verdict)},
        {key: one.what for key, one in found.items() if isinstance(one, NoVerdict)},
        {
            key: one.what
            for key, one in found.items()
            if isinstance(one, ServiceError) and not isinstance(one, NoVerdict)
        },
        facts,
        frozenset(key for key, one in found.items() if isinstance(one, Verdict) and one.parts.get(ATTEMPTED)),
    )
    check_judged(graded, max_unscored, folder, model="reward.judge")
    return graded


async def _verdicts(
    stored: Callable[[], Iterable[Trajectory]],
    samples: Mapping[str, Sample],
    client: JudgeClient,
    verifying: Verifying,
) -> dict[Key, Verdict | ServiceError]:
    found: dict[Key, Verdict | ServiceError] = {}
    asked = (
        one
        for one in stored()
        if one.stop_reason != "error" and verifier_of(samples[one.sample_id]).asks_judge
    )
    for group in portions(asked, rows=AT_ONCE, size=BYTES):
        verdicts = await asyncio.gather(*(_verdict(one, samples, client, verifying) for one in group))
        keys = [(one.sample_id, one.rollout) for one in group]
        found.update(zip(keys, verdicts, strict=True))
    return found


async def _verdict(
    trajectory: Trajectory, samples: Mapping[str, Sample], client: JudgeClient, verifying: Verifying
) -> Verdict | ServiceError:
    sample = samples[trajectory.sample_id]
    compared = partial(compare, client, pictures=trajectory.images[: len(sample.images)])
    try:
        return await verifying.verify(trajectory.reply, sample, judge=compared)
    except ServiceError as error:
        return error


def _grade(verdict: Verdict) -> Grade:
    unreadable = verdict.parts.get("unreadable", 0.0) > 0
    return Grade(score=verdict.score, read=None if unreadable else verdict.why, fallback=verdict.score)
