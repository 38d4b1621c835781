"""What must hold before a run so that its trajectories can be scored, and when a run has to stop."""

import re
from collections import Counter
from collections.abc import Iterable, MutableMapping, Sequence
from dataclasses import astuple, dataclass

from vtune.environments import DEFAULT, name_of
from vtune.errors import RecipeError, RunFailed
from vtune.judge.key import secret
from vtune.reward.combining import weights_of
from vtune.reward.evidence import judge_of, needs_look
from vtune.reward.evidence_judge import EVIDENCE, EvidencePart
from vtune.reward.part import REWARDS
from vtune.reward.recipe import JUDGES, RewardRecipe
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory
from vtune.uses import used
from vtune.verifiers import check_ground_truth, verifier_of

_NAMED = re.compile(r"'[^']*'|\d+")
"""Quoted names and numbers in a reason."""


@dataclass(frozen=True, slots=True)
class ToolSamples:
    """How many samples the tool part of the reward concerns."""

    paid: int
    """Samples that offer a tool and give the tool part a weight."""
    looks: int
    """Those whose questions need a look; on the others, calls earn 0, or a red flag."""
    judged_looks: int = 0
    """Those whose calls a model judges, because they have no evidence boxes; also for `rollout.feedback` and
    `reward.counterfactual`, whatever the weight of the tool part."""
    judged_answers: int = 0
    """Samples whose answers a model compares, because no rule decides, or checks against the thoughts."""
    looks_here: int = 0
    """Those of `judged_looks` about which the run itself asks the model, even if a service scores."""
    answers_here: int = 0
    """The same for `judged_answers`: answers that `reward.counterfactual` regenerates."""

    def __add__(self, other: "ToolSamples") -> "ToolSamples":
        pairs = zip(astuple(self), astuple(other), strict=True)
        return ToolSamples(*(one + more for one, more in pairs))

    def asked_here(self, recipe: RewardRecipe) -> tuple[int, int]:
        """Numbers of samples about whose answers, and looks, the run itself asks its judge.

        A reward service asks its own.
        """
        if recipe.service is None:
            return self.judged_answers, self.judged_looks
        return self.answers_here, self.looks_here


def check_samples(samples: Iterable[Sample], recipe: RewardRecipe, *, feedback: bool = False) -> ToolSamples:
    """Check, before a run, that every sample can be scored. Main thread only (see `check_ground_truth`).

    Args:
        samples: What is asked.
        recipe: How it is scored.
        feedback: Whether the policy is told what its looks show (`rollout.feedback`).

    Returns:
        Counts for `check_evidence`.

    Raises:
        DataError: If a sample names no verifier, its verifier rejects the ground truth, or it lacks what a
            user's own part needs.
        RecipeError: If a sample's calls or answers need a judge, or its boxes a threshold, and the recipe
            has none.
    """
    paid = looks = judged_looks = judged_answers = looks_here = answers_here = 0
    by_model = recipe.consistency is not None and recipe.consistency.by == "model"
    again = recipe.counterfactual is not None
    for sample in samples:
        check_ground_truth(sample)
        _check_verifier(sample, recipe)
        for name, section in recipe.parts.given.items():
            if (needs := REWARDS[name].check_sample) is not None:
                needs(section, sample)
        compared = verifier_of(sample).asks_judge
        judged_answers += by_model or compared
        # In other environments the tool part is always 0, and no call has a red flag.
        if not sample.tools or name_of(sample) != DEFAULT:
            continue
        rewarded = weights_of(sample, recipe).tool != 0
        paid += rewarded
        if not (rewarded or feedback or again) or not needs_look(sample, recipe.evidence):
            continue
        looks += rewarded
        asks = _look_judge(sample, recipe, feedback=feedback).asks_model
        judged_looks += asks
        looks_here += asks and (feedback or again)
        answers_here += compared and again
    return ToolSamples(paid, looks, judged_looks, judged_answers, looks_here, answers_here)


def _look_judge(sample: Sample, recipe: RewardRecipe, *, feedback: bool) -> EvidencePart:
    """What judges the calls of a sample.

    Raises:
        RecipeError: If nothing can.
    """
    judge = judge_of(sample, recipe.evidence.judges, model=recipe.judge is not None)
    if judge is not None:
        return EVIDENCE[judge]
    fix = "set reward.judge, or take it out of search_abilities and search_sources in reward.evidence"
    if not weights_of(sample, recipe).tool:
        keys = {"rollout.feedback": feedback, "reward.counterfactual": recipe.counterfactual is not None}
        fix += f"; or leave out {' and '.join(key for key, given in keys.items() if given)}"
    raise RecipeError(
        _unjudged(sample, recipe),
        where=f"source {sample.source!r}, ability {sample.ability!r}",
        fix=fix,
    )


def _unjudged(sample: Sample, recipe: RewardRecipe) -> str:
    """Why the calls of a sample cannot be judged."""
    if recipe.evidence.judges == JUDGES:
        return f"sample {sample.id!r} has no evidence boxes, and the recipe has no judge"
    lacking = ", and ".join(f"`{name}`: {EVIDENCE[name].lacking}" for name in recipe.evidence.judges)
    return f"the calls of sample {sample.id!r} cannot be judged ({lacking})"


def _check_verifier(sample: Sample, recipe: RewardRecipe) -> None:
    """Check that the recipe has what the sample's verifier needs in addition to the sample."""
    verifier = verifier_of(sample)
    place = f"sample {sample.id!r}, source {sample.source!r}"
    if verifier.asks_judge and recipe.judge is None:
        raise RecipeError(
            f"verifier `{sample.verifier}` needs a model to compare answers, but the recipe names none",
            where=place,
            fix="set reward.judge",
        )
    if verifier.reads_iou and recipe.iou is None and sample.verifier_parm.get("iou") is None:
        raise RecipeError(
            f"verifier `{sample.verifier}` needs an IoU threshold for boxes",
            where=place,
            fix="set reward.iou, e.g. {schedule: fixed, thresholds: [0.5], until: [], target: null}",
        )


def check_keys(recipe: RewardRecipe) -> None:
    """Check, before a run, that the keys and tokens for its judge and services are set.

    Raises:
        RecipeError: If an environment variable is not set, or not a valid header value.
    """
    wanted = {
        "the judge's key": recipe.judge.api_key_env if recipe.judge is not None else None,
        "the token of the reward service": recipe.service.token_env if recipe.service is not None else None,
    }
    for what, name in wanted.items():
        secret(name, what)


def check_evidence(samples: ToolSamples) -> None:
    """Check, before training, that some call can earn something. Evaluation does not need this.

    Raises:
        RecipeError: If the tool part has weight and tools are offered, but no question needs a look: then
            calls could only lose, by red flags.
    """
    if samples.paid and not samples.looks:
        raise RecipeError(
            "the tool part of the reward has weight, but no tool call can earn anything",
            where=f"none of {samples.paid} samples with tools has evidence boxes or is named as a search",
            fix="name abilities or sources of the data in reward.evidence.search_abilities or "
            "reward.evidence.search_sources, or set reward.tool to 0 (or the samples' tool_ratio)",
        )


def unscored_share(trajectories: Sequence[Trajectory]) -> float:
    """Share of the trajectories whose total is None, in [0, 1]; 0 if there are no trajectories."""
    return len(_unscored(trajectories)) / len(trajectories) if trajectories else 0.0


def check_unscored(trajectories: Sequence[Trajectory], max_unscored: float) -> None:
    """Stop the run if too many trajectories of a step are unscored.

    Raises:
        RunFailed: If their share exceeds `max_unscored`, with the most common reason.
    """
    share = unscored_share(trajectories)
    if share > max_unscored:
        # Reasons that differ only in sample names and numbers count as one.
        whys = _unscored(trajectories)
        kinds = Counter(_NAMED.sub("", why) for _, why in whys)
        (kind, times), *_ = kinds.most_common(1)
        first, why = next((sample, why) for sample, why in whys if _NAMED.sub("", why) == kind)
        named = "" if "sample '" in why else f" (sample {first!r}{' and others' if times > 1 else ''})"
        raise RunFailed(
            f"{share:.1%} of the trajectories are unscored, the limit is {max_unscored:.1%}",
            where=f"{times} of {len(trajectories)}: {why}{named}",
            fix=f"{_remedy(why)}; or raise reward.max_unscored to go on without these trajectories",
        )


def _remedy(why: str) -> str:
    """What helps against a given reason for unscored trajectories; it may name a user's own file."""
    if own := next((file for file in used() if f" of {file.name}" in why), None):
        ended = why.endswith("died")
        better = f"correct {own.path}, which ends its process" if ended else f"make {own.path} faster"
        return f"{better}, and start a new run with another --out: --resume runs the copy that this one keeps"
    return (
        "fix the endpoint of the model, the judge, the reward service, the tool, the sandbox or the data, "
        "then continue with --resume"
    )


def take_silent(
    trajectories: Sequence[Trajectory], silent: MutableMapping[tuple[str, int], str]
) -> list[tuple[str, str]]:
    """(sample, reason) of each trajectory of a step whose judge gave no reply.

    A step may ask a sample several times, and the entries of later steps stay.

    Args:
        trajectories: Those of the step in this process.
        silent: `Scorer.silent`; what is returned is removed.
    """
    places = [(one.sample_id, one.rollout) for one in trajectories if one.reward and one.reward.total is None]
    found = [(place[0], silent[place]) for place in places if place in silent]
    for place in places:
        silent.pop(place, None)
    return found


def silent_line(silent: Sequence[Sequence[tuple[str, str]]], total: int) -> str | None:
    """The message about trajectories whose judge gave no reply; None if there are none.

    Args:
        silent: What `take_silent` returned in each process.
        total: Trajectories of the step.
    """
    everyone = [one for share in silent for one in share]
    if not everyone:
        return None
    whys = Counter(why for _, why in everyone)
    (why, _), *_ = whys.most_common(1)
    first = min(everyone)[0]
    return f"{whys.total()} of {total} trajectories are unscored, {first} the first of them: {why}"


def _unscored(trajectories: Sequence[Trajectory]) -> list[tuple[str, str]]:
    """(sample, reason) of each unscored trajectory."""
    rewards = ((trajectory.sample_id, trajectory.reward) for trajectory in trajectories)
    return [(s, "never scored" if r is None else r.why) for s, r in rewards if r is None or r.total is None]
