"""One right answer as a turn to regenerate, and what came of that turn."""

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vtune.errors import ServiceError
from vtune.metrics.counterfactual import Rerun
from vtune.models.policy import Policy
from vtune.reward.part import Unscored
from vtune.reward.recipe import RIGHT
from vtune.reward.score import Scorer
from vtune.rollout.engine import Completion, Engine
from vtune.rollout.openai import ServedPolicy
from vtune.rollout.regeneration import Regeneration, answer_again, answer_without
from vtune.runs.agent.exchanges import EXCHANGES, Scene, Unknown
from vtune.runs.agent.kinds import Kind
from vtune.runs.agent.rerun import asks_again, ended_with, others_of, sampling_of, turn_number
from vtune.runs.audit.drawn import Drawn
from vtune.runs.audit.rerun_record import Line, RerunRecord
from vtune.runs.audit.rerun_verdicts import JudgedBy, verdict_on
from vtune.runs.evaluate.suite import AgentRecipe
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory
from vtune.verifiers.answer_instruction import MARKS
from vtune.verifiers.verifier import one_of

OPENINGS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "tag": ("<answer>", ("</answer>",)),
    "boxed": ("\\boxed{", ()),
}
"""`answer_in` -> how a turn that answers at once begins, and the texts that end it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reruns:
    """What to regenerate, and how."""

    exchanges: tuple[str, ...]
    model: str
    """Folder or hub name, or `openai:URL#model`, of the model that generated the trajectories."""
    settings: Drawn | AgentRecipe
    kind: Kind
    seed: int
    record: RerunRecord
    judged_by: JudgedBy
    """How answers are judged: the same way as the existing ones."""
    drawn_by: str | None = None
    """The evaluation's name for the model that generated the trajectories, if different."""
    judge: str | None = None
    """The model for verifiers that ask a judge; None if there is none."""


@dataclass(frozen=True, slots=True)
class Model:
    """The opened policy."""

    policy: Policy | ServedPolicy
    engine: Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A turn to regenerate."""

    key: str
    exchange: str
    sample: Sample
    gold: str | None
    """The ground truth of what is shown instead of its pictures."""
    trajectory: Trajectory
    again: Regeneration


def turn_again(
    reruns: Reruns,
    name: str,
    trajectory: Trajectory,
    samples: Mapping[str, Sample],
    portion: Sequence[Trajectory],
    model: Model,
) -> Turn | Rerun:
    """The last turn of a right answer with an exchange, or its result if known without generating.

    Args:
        reruns: What to regenerate, and how.
        name: Name of the exchange.
        trajectory: A trajectory that saw a picture from a call.
        samples: Id -> sample.
        portion: Trajectories whose questions may lend their targets.
        model: The policy, whose picture processing and tokenizer are used.

    Raises:
        DataError: If the record is from another model.
    """
    sample = samples[trajectory.sample_id]
    key = _key(reruns, name, sample, trajectory)
    kept = reruns.record.get(key)
    if kept is not None:
        return kept.rerun()
    exchange, gold = EXCHANGES[name], None
    if exchange is None:
        again = _withheld(reruns, sample, trajectory, model)
    else:
        rng = random.Random(f"{reruns.seed} {name} {sample.id} {trajectory.rollout}")
        changed = exchange(Scene(sample, trajectory, others_of(sample, samples, portion), rng))
        if isinstance(changed, Unknown):
            return Rerun(right=None, why=changed.why)
        if changed.same:
            return Rerun(right=True, same=True)
        gold = changed.gold
        again = answer_again(
            trajectory,
            changed.images,
            model.policy.chat,
            model.policy.pictures,
            sampling=sampling_of(reruns.settings.rollout, sample, trajectory),
            key=_draw(reruns, sample, trajectory),
        )
    if again is None:
        return Rerun(right=None, why="nothing says where its answer begins")
    return Turn(key=key, exchange=name, sample=sample, gold=gold, trajectory=trajectory, again=again)


async def judged(
    reruns: Reruns, turn: Turn, said: tuple[str, Completion] | ServiceError, scorer: Scorer
) -> Rerun:
    """The result of a turn; recorded if known.

    Args:
        reruns: Contains the record.
        turn: The generated turn.
        said: Its text and tokens, or why there are none.
        scorer: An open scorer.
    """
    if isinstance(said, ServiceError):
        return Rerun(right=None, why=said.what)
    text, completion = said
    sample = turn.sample
    again = asks_again(text, sample, completion)
    ended = ended_with(turn.trajectory, turn.again, text)
    verdict = await verdict_on(sample, ended, reruns.judged_by, scorer)
    if isinstance(verdict, Unscored):
        return Rerun(right=None, why=verdict.why)
    follows: bool | None = None
    if turn.gold is not None:
        other_sample = replace(sample, ground_truth=turn.gold, answer=turn.gold)
        other = await verdict_on(other_sample, ended, reruns.judged_by, scorer)
        follows = None if isinstance(other, Unscored) else other.score >= RIGHT and not again
    line = Line(
        key=turn.key,
        exchange=turn.exchange,
        sample_id=sample.id,
        rollout=turn.trajectory.rollout,
        text=text,
        right=verdict.score >= RIGHT and not again,
        follows=follows,
        again=again,
        same=text == turn.trajectory.messages[-1].content,
        # Endpoints do not return them.
        tokens=len(completion.token_ids) if completion.token_ids else None,
    )
    reruns.record.add(line)
    return line.rerun()


def _withheld(reruns: Reruns, sample: Sample, trajectory: Trajectory, model: Model) -> Regeneration | None:
    """The answer in place of the first call; None if it is unknown how an answer begins."""
    opening = OPENINGS.get(one_of(sample, "answer_in", MARKS, default="tag"))
    if opening is None:
        return None
    return answer_without(
        trajectory,
        opening[0],
        model.policy.chat,
        model.policy.pictures,
        sampling=replace(sampling_of(reruns.settings.rollout, sample, trajectory), stop=opening[1]),
        key=_draw(reruns, sample, trajectory),
    )


def _draw(reruns: Reruns, sample: Sample, trajectory: Trajectory) -> tuple[int, ...]:
    return reruns.seed, 0, trajectory.group, trajectory.rollout, turn_number(sample, trajectory)


def _key(reruns: Reruns, name: str, sample: Sample, trajectory: Trajectory) -> str:
    """Key that identifies a regenerated turn and the way it was judged."""
    rollout = reruns.settings.rollout
    said: object = trajectory.token_ids or [message.content for message in trajectory.messages]
    facts = [
        _weights(reruns.model),
        name,
        reruns.seed,
        [rollout.temperature, rollout.max_new_tokens, rollout.max_tokens],
        reruns.settings.images.model_dump(),
        [trajectory.sample_id, trajectory.rollout, trajectory.policy_version],
        [sample.ground_truth, sample.verifier, sample.verifier_parm, sample.choices, reruns.judge],
        said,
        # Verdicts of verifiers keep the keys of earlier versions.
        *reruns.judged_by.name,
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def _weights(model: str) -> list[object]:
    """A model's name, with sizes and times of its folder's files, as a folder may be overwritten."""
    folder = Path(model)
    if not folder.is_dir():
        return [model]
    files = sorted(path for path in folder.iterdir() if path.is_file())
    return [model, *([path.name, path.stat().st_size, path.stat().st_mtime_ns] for path in files)]
