"""The recipe sections for rollouts."""

from typing import Literal, Self

from pydantic import Field, model_validator

from vtune.rollout.prompts import Style
from vtune.sections import Strict


class Rollout(Strict):
    """How conversations are generated."""

    prompt: Style
    temperature: float = Field(ge=0)
    max_turns: int = Field(gt=0)
    """The policy's turns, including the one with the answer."""
    max_new_tokens: int = Field(gt=0)
    """Tokens per turn."""
    max_tokens: int = Field(gt=0)
    """Tokens in the whole conversation, including pictures."""
    max_batch: int = Field(gt=0)
    """Turns generated at the same time: rows of a batch, or vLLM's `max_num_seqs`."""
    max_conversations: int | None = Field(default=None, gt=0, exclude_if=lambda count: count is None)
    """Concurrent conversations, including those that wait for their tools; null: `max_batch`."""
    tensor_parallel: int = Field(default=1, gt=0, exclude_if=lambda gpus: gpus == 1)
    """GPUs of one machine that share one vLLM, for a model too large for one GPU beside training."""
    feedback: bool = Field(default=False, exclude_if=lambda shown: not shown)
    """Whether the evidence judge's verdict on a look is added to the observation that the policy reads."""

    @model_validator(mode="after")
    def _a_batch_is_filled(self) -> Self:
        if self.conversations < self.max_batch:
            raise ValueError(
                f"max_conversations {self.max_conversations} do not fill a max_batch of "
                f"{self.max_batch}: raise the first or lower the second"
            )
        return self

    @property
    def conversations(self) -> int:
        """Concurrent conversations, if the sandbox has room for them."""
        return self.max_conversations or self.max_batch


class TrainingRollout(Rollout):
    """The same for training, where the weights change."""

    engine: Literal["transformers", "vllm"]
    """What generates turns: the model being trained itself, or vLLM."""
    servers: tuple[str, ...]
    """URLs of vLLM servers; empty: vLLM runs in every training process."""
    gpu_memory: float = Field(gt=0, lt=1)
    """Share of a GPU that vLLM may use in the training process."""
    staleness: int = Field(ge=0)
    """Steps by which the sampling weights may lag; 1: the next step is generated while one trains."""
    interrupt: bool = Field(default=False, exclude_if=lambda interrupts: not interrupts)
    """Transfer new weights at once, in the middle of running conversations; otherwise after all conversations
    of a step have ended."""
    adapters: Literal["merged", "alone"] = Field(default="merged", exclude_if=lambda way: way == "merged")
    """What vLLM receives from a model with `update.lora`: all weights with adapters merged, or only
    adapters."""

    @model_validator(mode="after")
    def _what_is_ahead_takes_new_weights(self) -> Self:
        if self.staleness > 1 and not self.interrupt:
            raise ValueError(
                f"staleness {self.staleness} needs interrupt: true, or new weights wait for all "
                "rollouts that are ahead"
            )
        if self.interrupt and not self.staleness:
            raise ValueError(
                "interrupt has no effect with staleness 0: nothing is generated while weights change"
            )
        if self.interrupt and self.servers and self.adapters == "alone":
            raise ValueError(
                "servers take adapters only while nothing is generated: set adapters to merged, or interrupt "
                "to false"
            )
        return self
