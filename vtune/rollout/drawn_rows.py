"""The tokens sampled so far for each row of a batch, and which rows a token ends."""

from collections.abc import Sequence
from math import isnan

import torch

from vtune.errors import RunFailed
from vtune.models.chat import Chat
from vtune.rollout.engine import Completion, Finish, Request

UNREAD = 64
"""Most tokens per row that stay in tensors; ours. A NaN is noticed only when they are read."""


class DrawnRows:
    """The turns being sampled for a batch of R rows.

    The GPU is synchronised once per token, to learn whether one of them may end its row; tokens,
    log-probabilities and entropies stay on it until then.

    Args:
        chat: The policy's chat format.
        requests: The request of each row.
        closing: For each row, which ids can complete a stop text: bool, (V,); the text is checked only after
            one of these.
    """

    def __init__(self, chat: Chat, requests: Sequence[Request], closing: Sequence[torch.Tensor]) -> None:
        self._chat = chat
        self._requests = requests
        self._limits = [request.sampling.max_new_tokens for request in requests]
        self._tokens: list[list[int]] = [[] for _ in requests]
        self._logprobs: list[list[float]] = [[] for _ in requests]
        self._entropies: list[list[float]] = [[] for _ in requests]
        self._finish: list[Finish] = ["length"] * len(requests)
        self._rows = list(range(len(requests)))
        """Rows still being generated, in the order of the tensors passed to `take`."""
        self._unread: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
        """Tokens, log-probabilities and entropies, (R,) each."""
        self._length = 0
        # Rows with the same stop texts share a mask.
        kinds = {id(mask): mask for mask in closing}
        self._watched = torch.stack(list(kinds.values()))
        self._watched[:, chat.end_id] = True
        numbers = {kind: number for number, kind in enumerate(kinds)}
        self._kinds = torch.tensor([numbers[id(mask)] for mask in closing], device=self._watched.device)

    @property
    def drawing(self) -> Sequence[int]:
        """Indices of the rows still being generated."""
        return self._rows

    @property
    def length(self) -> int:
        """Tokens sampled so far for each unfinished row."""
        return self._length

    def take(
        self, tokens: torch.Tensor, logprobs: torch.Tensor, entropies: torch.Tensor
    ) -> tuple[list[int], torch.Tensor | None]:
        """Add one more token to each row still being generated.

        Args:
            tokens: int64, (R,).
            logprobs: Of these tokens, (R,).
            entropies: Of the distributions that they were sampled from, (R,).

        Returns:
            Indices of the rows that end; and the positions, among the R, of the rows that continue: int64,
            None if all continue.

        Raises:
            RunFailed: If a log-probability is NaN.
        """
        self._unread.append((tokens, logprobs, entropies))
        self._length += 1
        may_end = self._watched[self._kinds, tokens]
        if self._length < min(self._limits[row] for row in self._rows) and not may_end.any():
            if len(self._unread) == UNREAD:
                self._read()
            return [], None
        self._read()
        ends = [
            (flag and self._stops(row)) or self._length >= self._limits[row]
            for row, flag in zip(self._rows, may_end.tolist(), strict=True)
        ]
        if not any(ends):
            return [], None
        ended = [row for row, end in zip(self._rows, ends, strict=True) if end]
        self._rows = [row for row, end in zip(self._rows, ends, strict=True) if not end]
        indices = [index for index, end in enumerate(ends) if not end]
        on = torch.tensor(indices, dtype=torch.int64, device=tokens.device)
        self._kinds = self._kinds[on]
        return ended, on

    def completion(self, row: int, version: int) -> Completion:
        """The completed turn of a row."""
        tokens = tuple(self._tokens[row])
        return Completion(
            tokens,
            tuple(self._logprobs[row]),
            self._finish[row],
            (version,) * len(tokens),
            entropies=tuple(self._entropies[row]),
        )

    def _read(self) -> None:
        """Move the values added since the last call from tensors to lists."""
        tokens, *numbers = (torch.stack(one, dim=1) for one in zip(*self._unread, strict=True))
        self._unread.clear()
        drawn, (logprobs, entropies) = tokens.tolist(), torch.stack(numbers).tolist()
        for row, *found in zip(self._rows, drawn, logprobs, entropies, strict=True):
            if isnan(sum(found[1])):
                raise RunFailed(
                    "the model's logits are not numbers",
                    fix="its weights are not numbers, or overflow: start a new run with a lower "
                    "update.learning_rate from an earlier checkpoint (--set model=OUT/checkpoints/step-…), "
                    "or remove the folder of the newest one and --resume",
                )
            self._tokens[row] += found[0]
            self._logprobs[row] += found[1]
            self._entropies[row] += found[2]

    def _stops(self, row: int) -> bool:
        """Whether a row's last token, which is one that may, ends its turn."""
        tokens = self._tokens[row]
        if tokens[-1] == self._chat.end_id:
            self._finish[row] = "end"
            return True
        # At least as long as any stop text: each token holds at least one byte of it.
        stops = self._requests[row].sampling.stop
        tail = self._chat.decode(tokens[-2 * max(len(stop.encode()) for stop in stops) :])
        if not any(stop in tail for stop in stops):
            return False
        self._finish[row] = "stop"
        return True
