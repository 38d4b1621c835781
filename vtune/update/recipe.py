"""The recipe sections for updates."""

from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BeforeValidator, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from vtune.models.families.family import Part
from vtune.models.policy import Dtype
from vtune.sections import Strict

Decay = Annotated[float, Field(ge=0, lt=1)]
"""Decay of a running mean: the share of it that is kept at each step."""


class LoRA(Strict):
    """Train low-rank adapters instead of the weights (Hu et al. 2021)."""

    rank: int = Field(gt=0)
    alpha: int = Field(gt=0)
    """The adapter's output is scaled by alpha / rank."""
    targets: tuple[str, ...] = Field(min_length=1)
    """Names of linear layers, e.g. `q_proj`; those in frozen parts get no adapter."""


class Update(Strict):
    """How weights change; shared by supervised training and reinforcement learning."""

    learning_rate: float = Field(gt=0)
    schedule: Literal["constant", "cosine"]
    """After the warm-up; cosine falls to a tenth of the learning rate."""
    warmup_steps: int = Field(ge=0)
    betas: tuple[Decay, Decay]
    weight_decay: float = Field(ge=0)
    """AdamW's, applied to everything that is trained, including norms, biases and embeddings."""
    grad_clip: float = Field(gt=0)
    """Maximum gradient norm; larger gradients are scaled down to it."""
    micro_tokens: int = Field(gt=0)
    """Tokens per forward pass of one process, without padding; a shared prefix counts once. A longer
    conversation gets a pass of its own."""
    sequence_parallel: int = Field(default=1, gt=0, exclude_if=lambda processes: processes == 1)
    """Number of neighbouring processes that share a row, for conversations too long for one GPU. A row may
    then have this many times `micro_tokens`."""
    activation_checkpointing: bool
    """Recompute activations in the backward pass: less memory, a third more time."""
    skip_grad_norm: float | None = Field(gt=0)
    """An update whose gradient norm is larger, or not finite, is skipped and counted; null: none is skipped,
    and the run stops if the norm is not finite."""
    zero_stage: Literal[1, 2, 3]
    """What DeepSpeed shards among processes: optimiser state (1), also gradients (2), also weights (3)."""
    overlap_comm: bool = Field(default=False, exclude_if=lambda overlaps: not overlaps)
    """Whether gradients are reduced, and the next weights gathered, while a GPU computes. Needs a second
    buffer."""
    offload: tuple[Literal["optimizer", "params"], ...]
    """What DeepSpeed keeps in host memory."""
    dtype: Dtype
    freeze: tuple[Part, ...]
    lora: LoRA | None
    """Null: the weights themselves are trained."""
    threads: int = Field(gt=0)
    """CPU threads per process; with transformers, rollouts with tools are generated with one fewer."""

    @model_validator(mode="after")
    def _params_are_split(self) -> "Update":
        if "params" in self.offload and self.zero_stage != 3:
            raise ValueError("offload of params needs zero_stage 3, the stage that splits them")
        return self

    @model_validator(mode="after")
    def _something_travels(self) -> "Update":
        if self.overlap_comm and self.zero_stage == 1:
            raise ValueError(
                "overlap_comm needs zero_stage 2 or 3: at stage 1 gradients are sent once, at the end"
            )
        return self

    @model_validator(mode="after")
    def _something_is_trained(self) -> "Update":
        if set(self.freeze) == set(get_args(Part)):
            raise ValueError("freeze leaves nothing to train: take a part out of it")
        return self


class Best(Strict):
    """Which evaluation during training decides which checkpoint is the best."""

    suite: str
    """Name of one of the suites in `eval`."""
    metric: str
    """From the suite's row over all its sources in `metrics.jsonl`, e.g. `score`."""
    mode: Literal["max", "min"]
    """Whether higher or lower is better."""


class Keep(Strict):
    """Which checkpoints are kept; the others are removed when the next one is written."""

    newest: int = Field(gt=0)
    """Number of newest checkpoints to keep."""
    best: Best | None = None
    """Also keep the one that an evaluation found best, to which the link `best` points; null: no."""
    every: int | None = Field(default=None, gt=0)
    """Also keep one every this many steps, for the curve; null: no."""

    @model_serializer(mode="wrap")
    def _as_it_was_written(self, plain: SerializerFunctionWrapHandler) -> Any:
        # Recipes in run folders have a bare number: the same run must still compare equal.
        return self.newest if self.best is None and self.every is None else plain(self)


def _newest(value: Any) -> Any:
    return value if isinstance(value, dict | Keep) else {"newest": value}


class Checkpoints(Strict):
    """When weights and optimiser state are written."""

    every: int = Field(gt=0)
    """Interval in steps; the last step is always written."""
    minutes: float | None = Field(gt=0)
    """Also at the end of a step once this much time has passed since the last one; null: only by steps."""
    keep: Annotated[Keep, BeforeValidator(_newest)]
    """Which ones are kept; a bare number is the number of newest ones."""
    background: bool = Field(default=False, exclude_if=lambda background: not background)
    """Whether training continues while one is written: optimiser state is copied to host memory, and the
    checkpoint is complete some steps later."""

    @model_validator(mode="after")
    def _there_are_such_checkpoints(self) -> Self:
        if self.keep.every is not None and self.keep.every % self.every:
            raise ValueError(
                f"keep.every {self.keep.every} is not a multiple of every {self.every}: after those steps "
                "there is no checkpoint to keep"
            )
        return self
