"""GRPO: the clipped ratio of each token, with truncated importance weights."""

from pydantic import Field, model_validator

from vtune.update.losses.loss import LOSSES, Loss, PolicyLoss, PolicyTerms, Tokens, ratio_of

NAME = "grpo"


class GRPO(PolicyLoss):
    """Keys of `grpo`.

    Dr. GRPO is this with the baseline `group_mean` and `fixed_length`; DAPO is this with a larger
    `clip_high`, `token_mean`, `advantage.dynamic_sampling_rounds` and `advantage.overlong`.
    """

    clip_low: float = Field(gt=0)
    """How far the ratio may fall below 1."""
    clip_high: float = Field(gt=0)
    """How far it may rise above 1; more than `clip_low` is DAPO's clip-higher."""
    dual_clip: float | None = Field(default=None, gt=1)
    """If the advantage is negative and the ratio above this, the objective is dual_clip A, without gradient;
    null: no such bound."""
    importance_cap: float
    """Largest importance weight of a token, new over old probability; at least 1 + clip_high."""

    @model_validator(mode="after")
    def _the_clip_comes_first(self) -> "GRPO":
        if self.importance_cap < 1 + self.clip_high:
            raise ValueError(f"importance_cap must be at least 1 + clip_high = {1 + self.clip_high}")
        return self


def grpo(tokens: Tokens, recipe: GRPO) -> PolicyTerms:
    """Clip the ratio of each token: -min(w A, clip(r, 1 - clip_low, 1 + clip_high) A).

    r is the probability of a token now over that when it was drawn; w is r, its value truncated at the cap:
    a token's gradient is min(r, cap) A grad(logprobs), or none where the clip decides. Where weights have not
    moved since they drew a token, r is nothing but the mismatch of two implementations: it is corrected, but
    it is not a step that a clip could hold back. So the log-probabilities of the rollout serve in both cases,
    and no pass of the old policy is needed.

    Source: GRPO, Shao et al. 2024, "From PPO to GRPO"; CodeV eq. 4 (CodeV writes the reference policy below
    the ratio; its code, and all of the field, the policy that drew the tokens; so do we). Clip-higher: DAPO,
    Yu et al. 2025, "Clip-Higher". Dual clip: Ye et al. 2020, "Mastering complex control in MOBA games with
    deep reinforcement learning", max(min(r A, clip(r) A), c A) for A < 0. The cap: Yao et al., "Your
    efficient RL framework secretly brings you off-policy RL training" (2025), truncated importance sampling
    by token.
    """
    logprobs, advantages, off_policy = tokens.logprobs, tokens.advantages, tokens.off_policy
    ratio = ratio_of(tokens)
    truncated = ratio > recipe.importance_cap
    # As large as the cap, with the gradient of a logarithm times the cap.
    capped = recipe.importance_cap * (logprobs - logprobs.detach()).exp()
    weighed = capped.where(truncated, ratio) * advantages
    bounded = ratio.clamp(1 - recipe.clip_low, 1 + recipe.clip_high) * advantages
    clipped = off_policy & (bounded < ratio * advantages)
    objective = bounded.where(clipped, weighed)
    if recipe.dual_clip is not None:
        floored = off_policy & (advantages < 0) & (ratio > recipe.dual_clip)
        objective = (recipe.dual_clip * advantages).where(floored, objective)
        clipped = clipped | floored
    return PolicyTerms(-objective, clipped, truncated)


LOSSES.add(
    NAME,
    Loss(
        grpo,
        GRPO,
        coincides_on_policy=True,
        example={"clip_low": 0.2, "clip_high": 0.28, "importance_cap": 2.0},
    ),
)
