"""What a recipe says about an update."""

from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BeforeValidator, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from vtune.config import Strict
from vtune.models.families.family import Part
from vtune.models.policy import Dtype
from vtune.update.loss import Aggregation, KLEstimator

Decay = Annotated[float, Field(ge=0, lt=1)]
"""What a running mean keeps of itself at each step."""


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
    betas: tuple[Decay, Decay]
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

    @model_validator(mode="after")
    def _something_is_trained(self) -> "Update":
        if set(self.freeze) == set(get_args(Part)):
            raise ValueError("freeze leaves nothing to train: take a part out of it")
        return self


class PolicyLoss(Strict):
    """The objective of reinforcement training: one policy-gradient loss, its aggregation and a KL.

    Keys of other algorithms than the one that is named are left out, or null. Defaults are what recipes
    meant before there was a choice.
    """

    algorithm: Literal["grpo", "gspo", "sapo", "cispo"] = "grpo"
    """See the functions of these names in `vtune.update.loss`. Dr. GRPO is `grpo` with the baseline
    `group_mean` and `fixed_length`; DAPO is `grpo` with a larger `clip_high`, `token_mean`,
    `advantage.refills` and `advantage.overlong`."""
    clip_low: float | None = Field(default=None, gt=0)
    """grpo, gspo, cispo: how far a ratio may fall below 1."""
    clip_high: float | None = Field(default=None, gt=0)
    """grpo, gspo, cispo: how far it may rise above 1."""
    dual_clip: float | None = Field(default=None, gt=1)
    """grpo: ratio above which a negative advantage teaches no more; null: none."""
    importance_cap: float | None = None
    """grpo: largest importance weight of a token, new over old probability."""
    tau_positive: float | None = Field(default=None, gt=0)
    """sapo: how fast the gate closes on tokens with an advantage above 0."""
    tau_negative: float | None = Field(default=None, gt=0)
    """sapo: on the others."""
    aggregation: Aggregation = "token_mean"
    """How the losses of tokens make one: see `token_weights` in `vtune.update.loss`."""
    length: int | None = Field(default=None, gt=0)
    """fixed_length: the tokens that each sequence is divided by."""
    kl_weight: float = Field(ge=0)
    """Weight of the KL to the starting weights; 0 keeps no reference model."""
    kl_estimator: KLEstimator = "k3"
    """Of that KL."""

    @model_validator(mode="after")
    def _every_key_has_its_effect(self) -> Self:
        for name in sorted(set().union(*_NEEDED.values()) | {"dual_clip"}):
            wanted = name in _NEEDED[self.algorithm]
            allowed = wanted or (name == "dual_clip" and self.algorithm == "grpo")
            if wanted and getattr(self, name) is None:
                raise ValueError(f"algorithm {self.algorithm} needs {name}")
            if not allowed and getattr(self, name) is not None:
                raise ValueError(f"{name} has no effect with algorithm {self.algorithm}: leave it out")
        if (self.length is None) == (self.aggregation == "fixed_length"):
            raise ValueError("length belongs to aggregation fixed_length: give both, or neither")
        return self

    @model_validator(mode="after")
    def _the_clip_comes_first(self) -> Self:
        if self.importance_cap is not None and self.importance_cap < 1 + (self.clip_high or 0):
            raise ValueError(f"importance_cap must be at least 1 + clip_high = {1 + (self.clip_high or 0)}")
        return self


_NEEDED = {
    "grpo": {"clip_low", "clip_high", "importance_cap"},
    "gspo": {"clip_low", "clip_high"},
    "sapo": {"tau_positive", "tau_negative"},
    "cispo": {"clip_low", "clip_high"},
}


class Best(Strict):
    """Which evaluation during training decides what the best checkpoint is."""

    suite: str
    """Name of one of the suites of `eval`."""
    metric: str
    """Of the suite's line over all its sources in `metrics.jsonl`, e.g. `score`."""
    mode: Literal["max", "min"]
    """Whether more is better, or less."""


class Keep(Strict):
    """Which checkpoints stay; the others are removed when the next one is written."""

    newest: int = Field(gt=0)
    """So many."""
    best: Best | None = None
    """And the one that an evaluation found best, to which the link `best` points; null: none."""
    every: int | None = Field(default=None, gt=0)
    """And those of every so many steps, for the curve; null: none."""

    @model_serializer(mode="wrap")
    def _as_it_was_written(self, plain: SerializerFunctionWrapHandler) -> Any:
        # Recipes in run folders have a bare number: the same run is to be found the same.
        return self.newest if self.best is None and self.every is None else plain(self)


def _newest(value: Any) -> Any:
    return value if isinstance(value, dict | Keep) else {"newest": value}


class Checkpoints(Strict):
    """When weights and optimiser state are written."""

    every: int = Field(gt=0)
    """Steps; the last step is always written."""
    minutes: float | None = Field(gt=0)
    """Also when this much time has passed since the last one, at the end of a step; null: only by steps."""
    keep: Annotated[Keep, BeforeValidator(_newest)]
    """Which ones stay; a bare number is that of the newest."""

    @model_validator(mode="after")
    def _there_are_such_checkpoints(self) -> Self:
        if self.keep.every is not None and self.keep.every % self.every:
            raise ValueError(
                f"keep.every {self.keep.every} is no multiple of every {self.every}: after those steps there "
                "is no checkpoint to keep"
            )
        return self
