"""The training forward: log-probability and entropy of the tokens that count, and of no others."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vtune.models.batch import Batch, image_features
from vtune.models.chat import Chat
from vtune.models.policy import policy_logprobs

CHUNK = 1024
"""Tokens whose logits exist at the same time: 0.6 GB in float32 at a vocabulary of 152 k."""


class TokenStats(NamedTuple):
    """One entry a counted token, row by row, shape (N,), in nats."""

    logprobs: Tensor
    entropy: Tensor
    """Without gradient."""


class PolicyForward(nn.Module):
    """The model as DeepSpeed wraps it: a batch in, `TokenStats` out."""

    def __init__(self, model: Any, chat: Chat) -> None:
        super().__init__()
        self.model = model
        self._chat = chat

    def forward(self, batch: Batch, counted: Tensor) -> TokenStats:
        """Score the counted tokens.

        Args:
            batch: B rows of T tokens, padded on the right.
            counted: bool, shape (B, T). A row's first token cannot count: nothing predicts it.
        """
        hidden = self.model.model(
            input_ids=batch.input_ids,
            attention_mask=batch.attention_mask,
            position_ids=batch.position_ids,
            mm_encoder_outputs=image_features(self.model, batch),
            use_cache=False,
        ).last_hidden_state
        hidden = hidden[:, :-1][counted[:, 1:]]
        targets = batch.input_ids[:, 1:][counted[:, 1:]]
        if len(targets) <= CHUNK:
            return TokenStats(*self._score(hidden, targets))
        # The logits of one chunk at a time, made again in the backward pass: they are never all there.
        parts: list[tuple[Tensor, Tensor]] = [
            checkpoint(self._score, h, t, use_reentrant=False)
            for h, t in zip(torch.split(hidden, CHUNK), torch.split(targets, CHUNK), strict=True)
        ]
        return TokenStats(torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts]))

    def _score(self, hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        logprobs = policy_logprobs(self.model.lm_head(hidden), self._chat)
        with torch.no_grad():
            entropy = torch.special.entr(logprobs.exp()).sum(-1)
        return logprobs.gather(1, targets[:, None])[:, 0], entropy
