"""Combines the parts of a reward into its total."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from vtune.reward.part import REWARDS, Unscored
from vtune.reward.recipe import RIGHT, RewardRecipe
from vtune.schema.reward import Reward
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory
from vtune.schema.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Weights:
    """The weight λ of each part, in [0, 1]."""

    accuracy: float
    format: float
    tool: float
    consistency: float = 0.0
    own: Mapping[str, float] = field(default_factory=dict)
    """Weights of the user's own parts, from files under `uses`."""

    def of(self, name: str) -> float:
        """The weight of a part."""
        return self.own[name] if name in self.own else float(getattr(self, name))


def weights_of(sample: Sample, recipe: RewardRecipe) -> Weights:
    """The weights for a sample, from the recipe or from the sample, as `weighting` says.

    Parts without a weight in samples always use the recipe's.
    """
    consistency = 0.0 if recipe.consistency is None else recipe.consistency.weight
    own = {name: section.weight for name, section in recipe.parts.given.items()}
    if recipe.weighting == "recipe":
        return Weights(recipe.accuracy, recipe.format, recipe.tool, consistency, own)
    ratios = (sample.accuracy_ratio, sample.format_ratio, sample.tool_ratio)
    divisor = sum(ratios) if recipe.weighting == "sample_normalised" else 1.0
    accuracy, form, tool = (ratio / divisor if divisor else 0.0 for ratio in ratios)
    return Weights(accuracy, form, tool, consistency, own)


def combine(parts: Mapping[str, Verdict | Unscored], weights: Weights, recipe: RewardRecipe) -> Reward:
    """One reward from its parts; the total is None if a part with a weight, or the gate, is unscored.

    The reward records each part unweighted; weights and gate affect only the total. The reason names all
    parts or, if the total is None, those that make it None.

    Args:
        parts: By name, in the order in which the reason names them: accuracy, format and tool, then any
            others that the recipe uses.
        weights: Weight of each part.
        recipe: Says whether the tool part is gated.

    Source: CodeV eq. 5, with the format part of its figure 9 and the consistency part of its table 2.
    """
    scores = {name: part.score if isinstance(part, Verdict) else None for name, part in parts.items()}
    paid = dict(scores)
    accuracy, tool = scores["accuracy"], scores["tool"]
    if recipe.tool_gated and accuracy is not None and tool is not None:
        paid["tool"] = tool if accuracy >= RIGHT else min(tool, 0.0)
    counts = {name for name in parts if weights.of(name)}
    if recipe.tool_gated and "tool" in counts and tool is not None and tool > 0:
        counts.add("accuracy")  # whatever its weight, the gate depends on it
    missing = [name for name in parts if name in counts and scores[name] is None]
    earned = (weights.of(name) * score for name, score in paid.items() if score is not None)
    total = None if missing else sum(earned)
    why = " | ".join(f"{name}: {parts[name].why}" for name in missing or parts)
    answer = parts["accuracy"]
    return Reward(
        total=total,
        accuracy=accuracy,
        format=scores["format"],
        tool=tool,
        consistency=scores.get("consistency"),
        why=why,
        parts=answer.parts if isinstance(answer, Verdict) else {},
        own={name: score for name, score in scores.items() if not REWARDS[name].column},
    )


def with_part(reward: Reward, name: str, part: Verdict | Unscored, weight: float) -> Reward:
    """A reward with one more part, scored after the others; its total is None if the part is unscored.

    Args:
        reward: Must have a total.
        name: Name of the part, its key in `own`.
        part: The part's score.
        weight: The part's weight.
    """
    score = part.score if isinstance(part, Verdict) else None
    total = None if reward.total is None or score is None else reward.total + weight * score
    reason = f"{name}: {part.why}"
    why = reason if score is None else f"{reward.why} | {reason}"
    return replace(reward, total=total, why=why, own={**reward.own, name: score})


def unscorable(trajectory: Trajectory, why: str) -> Trajectory:
    """A trajectory with no part that can be scored."""
    nothing = Reward(total=None, accuracy=None, format=None, tool=None, why=why)
    return replace(trajectory, reward=nothing, tool_scores=(None,) * len(trajectory.calls))
