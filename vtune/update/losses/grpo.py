"""GRPO: the clipped ratio of each token, with truncated importance weights."""

from pydantic import Field, model_validator

from vtune.update.losses.loss import LOSSES, Loss, PolicyLoss, PolicyTerms, Tokens, ratio_of

NAME = "grpo"


class GRPO(PolicyLoss):
    """Keys of `grpo`.

    With the baseline `group_mean` and `fixed_length` this is Dr. GRPO; with a larger `clip_high`,
    `token_mean`, `advantage.dynamic_sampling_rounds` and `advantage.overlong` it is DAPO.
    """

    clip_low: float = Field(gt=0)
    """How far the ratio may fall below 1."""
    clip_high: float = Field(gt=0)
    """How far it may rise above 1; more than `clip_low` is DAPO's clip-higher."""
    dual_clip: float | None = Field(default=None, gt=1)
    """If the advantage is negative and the ratio is above this, the objective is dual_clip A, without
    gradient; null: no such bound."""
    importance_cap: float
    """Largest importance weight of a token, new over old probability; at least 1 + clip_high."""

    @model_validator(mode="after")
    def _the_clip_comes_first(self) -> "GRPO":
        if self.importance_cap < 1 + self.clip_high:
            raise ValueError(f"importance_cap must be at least 1 + clip_high = {1 + self.clip_high}")
        return self


def grpo(tokens: Tokens, recipe: GRPO) -> PolicyTerms:
    """Clip the ratio of each token: -min(w A, clip(r, 1 - clip_low, 1 + clip_high) A).

    r is a token's probability now over its probability when it was sampled; w is r, its value truncated at
    the cap: a token's gradient is min(r, cap) A grad(logprobs), or zero where the clip decides. If the
    weights have not changed since they sampled a token, r is only the mismatch of two implementations: it is
    corrected, but it is not a step that a clip could limit. So the rollout's log-probabilities serve in both
    cases, and no pass of the old policy is needed.

    Source: GRPO, Shao et al. 2024, "From PPO to GRPO"; CodeV eq. 4 (CodeV writes the reference policy in the
    denominator of the ratio; its code, like the whole field, uses the policy that sampled the tokens; so do
    we). Clip-higher: DAPO, Yu et al. 2025, "Clip-Higher". Dual clip: Ye et al. 2020, "Mastering complex
    control in MOBA games with deep reinforcement learning", max(min(r A, clip(r) A), c A) for A < 0. The cap:
    Yao et al., "Your efficient RL framework secretly brings you off-policy RL training" (2025), truncated
    importance sampling by token.
    """
    logprobs, advantages, off_policy = tokens.logprobs, tokens.advantages, tokens.off_policy
    ratio = ratio_of(tokens)
    truncated = ratio > recipe.importance_cap
    # The value of the cap, with gradient cap times that of the log-probability.
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
