"""How token losses add up to the loss of an update, independent of its micro-batches and processes."""

from typing import Literal

from jaxtyping import Float, Int

from vtune.update.losses.tensor import Tensor

Aggregation = Literal["token_mean", "sequence_mean", "fixed_length"]


def token_weights(
    sequence: Int[Tensor, " tokens"], aggregation: Aggregation, *, length: int | None
) -> Float[Tensor, " tokens"]:
    """The factor applied to each token's loss before the sum, which is then divided by `denominator`.

    - `token_mean`: 1; the sum is divided by the tokens of the update (DAPO, "Token-Level Policy Gradient
      Loss": every token counts equally).
    - `sequence_mean`: 1 / tokens of the sequence; divided by the sequences (GRPO, GSPO, SAPO).
    - `fixed_length`: 1 / length; divided by the sequences (Dr. GRPO, Liu et al. 2025: a constant, so that
      neither short nor long replies are favoured).

    Args:
        sequence: Index of the sequence that each token belongs to; sequences are complete.
        aggregation: How token losses are combined.
        length: The constant of `fixed_length`, in tokens.

    Raises:
        ValueError: If `fixed_length` has no length.
    """
    import torch

    if aggregation == "sequence_mean":
        return 1.0 / torch.bincount(sequence)[sequence].float()
    ones = torch.ones(len(sequence), device=sequence.device)
    if aggregation == "token_mean":
        return ones
    if length is None:
        raise ValueError("fixed_length needs a length")
    return ones / length


def denominator(aggregation: Aggregation, *, tokens: int, sequences: int) -> int:
    """What the weighted sum is divided by: tokens or sequences of the whole update, over all processes.

    Args:
        aggregation: How token losses are combined.
        tokens: Number of counted tokens.
        sequences: Number of sequences with at least one counted token.
    """
    return tokens if aggregation == "token_mean" else sequences
