"""What a recipe says about an update."""

from typing import Literal, Self

from pydantic import Field, model_validator

from vtune.config import Strict
from vtune.models.policy import Dtype

Part = Literal["vision", "connector", "language"]


class LoRA(Strict):
    """Train low-rank adapters in place of the weights (Hu et al. 2021)."""

    rank: int = Field(gt=0)
    alpha: int = Field(gt=0)
    """What an adapter adds is scaled by alpha / rank."""
    targets: tuple[str, ...] = Field(min_length=1)
    """Names of linear layers, e.g. `q_proj`; those in frozen parts get no adapter."""


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
    skip_grad_norm: float | None = Field(gt=0)
    """An update whose gradient norm is larger, or no number, is skipped and counted; null skips none and
    stops the run at what is no number."""
    zero_stage: Literal[1, 2, 3]
    """What DeepSpeed splits among processes: optimiser state (1), gradients too (2), weights too (3)."""
    offload: tuple[Literal["optimizer", "params"], ...]
    """What DeepSpeed keeps in the memory of the host."""
    dtype: Dtype
    freeze: tuple[Part, ...]
    lora: LoRA | None
    """Null trains the weights themselves."""
    threads: int = Field(gt=0)
    """CPU threads of one process."""

    @model_validator(mode="after")
    def _params_are_split(self) -> "Update":
        if "params" in self.offload and self.zero_stage != 3:
            raise ValueError("offload of params needs zero_stage 3, the stage that splits them")
        return self


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
    minutes: float | None = Field(gt=0)
    """Also when this much time has passed since the last one, at the end of a step; null: only by steps."""
    keep: int = Field(gt=0)
    """The newest ones that stay."""
