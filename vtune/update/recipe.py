"""What a recipe says about an update."""

from typing import Literal, Self

from pydantic import Field, model_validator

from vtune.config import Strict
from vtune.models.policy import Dtype

Part = Literal["vision", "connector", "language"]


class Update(Strict):
    """How weights change; shared by supervised and reinforcement training."""

    learning_rate: float = Field(gt=0)
    schedule: Literal["constant", "cosine"]
    """After the warm-up; cosine falls to a tenth."""
    warmup_steps: int = Field(ge=0)
    betas: tuple[float, float]
    weight_decay: float = Field(ge=0)
    grad_clip: float = Field(gt=0)
    """Largest gradient norm."""
    micro_tokens: int = Field(gt=0)
    """Tokens in one forward of one process, without padding; what conversations begin with alike counts once.
    A longer conversation goes alone."""
    activation_checkpointing: bool
    """Compute activations again in the backward pass: less memory, a third more time."""
    zero_stage: Literal[0, 1, 2]
    dtype: Dtype
    freeze: tuple[Part, ...]
    threads: int = Field(gt=0)
    """CPU threads of one process."""


class PolicyLoss(Strict):
    """The objective of reinforcement training (CodeV eq. 4)."""

    clip_low: float = Field(gt=0)
    clip_high: float = Field(gt=0)
    importance_cap: float
    """Largest importance weight of a token, new over old probability."""
    kl_weight: float = Field(ge=0)
    """Weight of the KL to the starting weights; 0 keeps no reference model."""

    @model_validator(mode="after")
    def _the_clip_comes_first(self) -> Self:
        if self.importance_cap < 1 + self.clip_high:
            raise ValueError(f"importance_cap must be at least 1 + clip_high = {1 + self.clip_high}")
        return self


class Checkpoints(Strict):
    """When weights and optimiser state are written."""

    every: int = Field(gt=0)
    """Steps; the last step is always written."""
    keep: int = Field(gt=0)
    """The newest ones that stay."""
