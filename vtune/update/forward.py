"""The training forward pass: log-probability and entropy of the tokens that count, and no others."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vtune.errors import RunFailed
from vtune.models.attention import use_tree_attention
from vtune.models.batch import image_features
from vtune.models.chat import Chat
from vtune.models.packed import Packed
from vtune.models.policy import policy_logprobs
from vtune.models.sequence_parallel import (
    SequenceGroup,
    Stretches,
    even,
    fetched,
    shared_features,
    stretches,
    together,
)

CHUNK = 2**25
"""Logits held at the same time: 134 MB in float32, 220 tokens at a vocabulary of 152 k."""
GPU_CHUNK = 2**27
"""The same on a GPU, 880 tokens: each chunk reads the whole output head and produces a gradient of its size,
which should take no longer than the arithmetic. By its data sheet an H100 computes 295 operations per byte
that it reads; 220 tokens need only 220 per byte, so they would be limited by memory."""


BLOCK = 2**18
"""Logits processed at a time, so that they fit in a CPU cache: 1 MB in float32."""


def logits_at_once() -> int:
    """The limit on logits held at the same time on this machine."""
    return GPU_CHUNK if torch.cuda.is_available() else CHUNK


class TokenStats(NamedTuple):
    """One entry per counted token, shape (N,), in nats."""

    logprobs: Tensor
    entropy: Tensor
    """Without gradient."""


class PolicyForward(nn.Module):
    """The model as DeepSpeed wraps it: packed conversations in, `TokenStats` out.

    Args:
        model: A transformers `…ForConditionalGeneration`.
        chat: The policy's chat format.
        group: The processes that share each row; all of them get the same inputs and return the same stats.
    """

    def __init__(self, model: Any, chat: Chat, group: SequenceGroup | None = None) -> None:
        super().__init__()
        use_tree_attention(model)
        self.model = model
        self._chat = chat
        self._group = group

    def chunks(self, counted: int) -> int:
        """The number of chunks in which the logits of this many counted tokens of a row are computed."""
        vocabulary: int = self.model.config.get_text_config().vocab_size
        own = -(-counted // (self._group.size if self._group else 1))
        return max(1, -(-own * vocabulary // logits_at_once()))

    def forward(self, packed: Packed, predicting: Tensor, targets: Tensor, chunks: int) -> TokenStats:
        """Score tokens.

        Args:
            packed: A row of T tokens.
            predicting: int64, (N,): index in the row of the token before each scored token.
            targets: int64, (N,): ids of the scored tokens.
            chunks: At least `self.chunks(N)`. If weights are sharded, each use of a module gathers it on all
                processes, so all of them must use the output head equally often.
        """
        if self._group is not None:
            return self._shared(packed, predicting, targets, chunks, stretches(packed.tokens, self._group))
        hidden = self.model.model(
            input_ids=packed.input_ids,
            position_ids=packed.position_ids,
            mm_encoder_outputs=image_features(self.model, packed.pictures),
            layout=packed.layout,
            use_cache=False,
        ).last_hidden_state[0]
        return self._scored(hidden.index_select(0, predicting), targets, chunks)

    def _shared(
        self, packed: Packed, predicting: Tensor, targets: Tensor, chunks: int, row: Stretches
    ) -> TokenStats:
        """Like `forward`, for a row shared by the processes of a group."""
        group, mine = row.group, row.mine
        # Computed before the forward pass is queued; afterwards this would synchronise with the GPU.
        places, ends = predicting.cpu(), torch.tensor(row.lengths).cumsum(0)
        hidden = self.model.model(
            input_ids=packed.input_ids[:, mine],
            position_ids=packed.position_ids[..., mine],
            mm_encoder_outputs=shared_features(self.model, packed.pictures, packed.input_ids, row),
            layout=packed.layout,
            stretches=row,
            use_cache=False,
        ).last_hidden_state[0]
        # Counted tokens tend to lie at a row's end; each process scores equally many, wherever they are.
        owners = torch.searchsorted(ends, places, right=True)
        starts = ends - torch.tensor(row.lengths)
        counts = even(len(targets), group.size)
        hidden = fetched(hidden, owners, places - starts[owners], counts, group)
        found = self._scored(hidden, torch.split(targets, counts)[group.index], chunks)
        return TokenStats(*(together(values, counts, group) for values in found))

    def _scored(self, hidden: Tensor, targets: Tensor, chunks: int) -> TokenStats:
        """Score tokens from the hidden states before them."""
        if chunks == 1:
            return TokenStats(*self._score(hidden, targets))
        # One chunk of logits at a time, recomputed in the backward pass, so that they never all exist at
        # once.
        parts: list[tuple[Tensor, Tensor]] = [
            checkpoint(self._score, h, t, use_reentrant=False)
            for h, t in zip(
                torch.tensor_split(hidden, chunks), torch.tensor_split(targets, chunks), strict=True
            )
        ]
        return TokenStats(torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts]))

    def _score(self, hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        apply: Any = _Chosen.apply
        logprobs, entropy = apply(self.model.lm_head(hidden), targets, self._chat)
        return logprobs, entropy


class _Chosen(torch.autograd.Function):
    """Log-probability of chosen tokens and entropy, (N,) each, from logits (N, V).

    Between forward and backward it keeps one array of the size of the logits; autograd would keep three.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, chat: Chat) -> tuple[Tensor, Tensor]:
        chosen, entropy = (torch.empty(len(logits), device=logits.device) for _ in range(2))
        probabilities = torch.empty_like(logits, dtype=torch.float32)
        # There are no rows in a dummy item, nor in surplus chunks that only match a busier process.
        rows = max(1, len(logits) if logits.is_cuda else BLOCK // logits.shape[-1])
        for start in range(0, len(logits), rows):
            block = slice(start, start + rows)
            logprobs = policy_logprobs(logits[block], chat)
            torch.gather(logprobs, 1, targets[block, None], out=chosen[block, None])
            mass = torch.exp(logprobs, out=probabilities[block])
            # Tokens without probability mass have -inf, and must contribute zero.
            entropy[block] = -logprobs.clamp_(min=torch.finfo(logprobs.dtype).min).mul_(mass).sum(-1)
        ctx.save_for_backward(probabilities, targets)
        ctx.dtype = logits.dtype
        ctx.mark_non_differentiable(entropy)
        return chosen, entropy

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
        probabilities, targets = ctx.saved_tensors
        # d log p(target) / d logits = [target] - p
        out = probabilities * -gradient[:, None]
        out.scatter_add_(1, targets[:, None], gradient[:, None])
        return out.to(ctx.dtype), None, None


def checkpoint_activations(model: Any) -> None:
    """Keep only each layer's input for the backward pass, and recompute the rest.

    Raises:
        RunFailed: If it has no effect.
    """
    settings = {"use_reentrant": False}
    if hasattr(model, "activation_checkpointing_enable"):
        model.activation_checkpointing_enable(activation_checkpointing_kwargs=settings)
    else:  # transformers before 5.23
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=settings)
    if not any(getattr(module, "gradient_checkpointing", False) for module in model.modules()):
        raise RunFailed(
            "update.activation_checkpointing had no effect: the model has no layer that supports it",
            fix="set it to false",
        )
