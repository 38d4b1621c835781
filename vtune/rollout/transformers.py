"""Rollouts with the training model itself, through transformers: no server, no second copy of the weights."""

import asyncio
import hashlib
from collections.abc import Sequence
from typing import Any

import torch

from vtune.models.batch import Row, collate, image_features
from vtune.models.policy import Policy, policy_logprobs
from vtune.rollout.engine import Completion, Finish, Request


class TransformersEngine:
    """Draws turns in batches. A batch starts when every running trajectory waits for a turn.

    Within a batch each distinct prompt is prefilled once, and each distinct picture encoded once,
    however many rollouts share it; rows that have ended leave the batch.

    Args:
        policy: The model; its weights may change between batches.
        max_batch: Rows drawn at the same time, at most.
    """

    def __init__(self, policy: Policy, *, max_batch: int) -> None:
        self._policy = policy
        self._max_batch = max_batch
        self._running = 0
        self._waiting: list[tuple[Request, asyncio.Future[Completion]]] = []
        self._closers: dict[str, frozenset[int]] = {}

    def join(self) -> None:
        """A trajectory starts to run: batches wait for it from now on."""
        self._running += 1

    def leave(self) -> None:
        """A trajectory has ended: batches no longer wait for it."""
        self._running -= 1
        self._draw_if_all_wait()

    async def generate(self, request: Request) -> Completion:
        """Draw one turn, together with those of all other running trajectories."""
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, future))
        self._draw_if_all_wait()
        return await future

    def _draw_if_all_wait(self) -> None:
        # A trajectory that was cancelled (Ctrl-C, a failure next door) waits no longer.
        self._waiting = [item for item in self._waiting if not item[1].done()]
        if not self._waiting or len(self._waiting) < self._running:
            return
        # The order in which tools returned must not matter: rows are sorted by who they are.
        waiting = sorted(self._waiting, key=lambda item: item[0].key)
        self._waiting = []
        for start in range(0, len(waiting), self._max_batch):
            part = waiting[start : start + self._max_batch]
            # A failure here is raised in one trajectory; the task group of the rollout ends the others.
            completions = self.draw([request for request, _ in part])
            for (_, future), completion in zip(part, completions, strict=True):
                future.set_result(completion)

    @torch.no_grad()
    def draw(self, requests: Sequence[Request]) -> list[Completion]:
        """Draw one turn for each request, in their order, as one batch."""
        policy = self._policy
        model = policy.model
        training = model.training
        model.eval()
        try:
            return _Draw(policy, requests, [self._closing_ids(request) for request in requests]).run()
        finally:
            model.train(training)

    def _closing_ids(self, request: Request) -> frozenset[int]:
        """Tokens that can complete a stop text: only after those is the text looked at."""
        last = "".join(sorted({stop[-1] for stop in request.sampling.stop}))
        if last not in self._closers:
            chat = self._policy.chat
            size = len(chat.tokenizer)
            words = chat.tokenizer.batch_decode([[i] for i in range(size)])
            self._closers[last] = frozenset(i for i, word in enumerate(words) if set(last) & set(word))
        return self._closers[last]


class _Draw:
    """The state of one batch while it is drawn: R rows, C columns of cache."""

    def __init__(
        self, policy: Policy, requests: Sequence[Request], closing: Sequence[frozenset[int]]
    ) -> None:
        self.policy = policy
        self.requests = requests
        self.closing = closing
        self.tokens: list[list[int]] = [[] for _ in requests]
        self.logprobs: list[list[float]] = [[] for _ in requests]
        self.finish: list[Finish] = ["length"] * len(requests)
        digest = hashlib.blake2b(repr([request.key for request in requests]).encode(), digest_size=8).digest()
        self.generator = torch.Generator(policy.device).manual_seed(int.from_bytes(digest, "big") >> 1)

    def run(self) -> list[Completion]:
        rows = list(range(len(self.requests)))
        hidden, cache, mask, position = self._prefill()
        budget = max(request.sampling.max_new_tokens for request in self.requests)
        for step in range(budget):
            drawn = self._sample(rows, hidden)
            keep = [
                i
                for i, (row, token) in enumerate(zip(rows, drawn.tolist(), strict=True))
                if not self._ends(row, token)
            ]
            if not keep or step == budget - 1:
                break
            if len(keep) < len(rows):
                index = torch.tensor(keep, device=drawn.device)
                rows = [rows[i] for i in keep]
                drawn, mask, position = drawn[index], mask[index], position[index]
                cache.batch_select_indices(index)
            mask = torch.cat([mask, mask.new_ones(len(rows), 1)], dim=1)
            hidden = self.policy.model.model(
                input_ids=drawn[:, None],
                attention_mask=mask,
                position_ids=position[None, :, None].expand(3, -1, -1),
                past_key_values=cache,
                use_cache=True,
            ).last_hidden_state[:, -1]
            position = position + 1
        return [
            Completion(tuple(tokens), tuple(logprobs), finish)
            for tokens, logprobs, finish in zip(self.tokens, self.logprobs, self.finish, strict=True)
        ]

    def _prefill(self) -> tuple[torch.Tensor, Any, torch.Tensor, torch.Tensor]:
        """Hidden state of each row's last token (R, D), cache, mask (R, C) and next position (R,)."""
        from transformers import DynamicCache

        policy = self.policy
        distinct: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
        first: list[Row] = []
        which: list[int] = []
        for request in self.requests:
            key = (tuple(request.token_ids), tuple(id(pixels) for pixels in request.pixels))
            number = distinct.setdefault(key, len(first))
            if number == len(first):
                first.append(Row(request.token_ids, request.pixels))
            which.append(number)
        chat = policy.chat
        batch = collate(first, pad_id=chat.pad_id, image_id=chat.image_id, merge=policy.merge, side="left")
        batch = batch.to(policy.device)
        cache = DynamicCache(config=policy.model.config.get_text_config())
        hidden = policy.model.model(
            input_ids=batch.input_ids,
            attention_mask=batch.attention_mask,
            position_ids=batch.position_ids,
            mm_encoder_outputs=image_features(policy.model, batch),
            past_key_values=cache,
            use_cache=True,
        ).last_hidden_state[:, -1]
        # One more than the largest position of a row: its pictures may have used fewer than their tokens.
        position = batch.position_ids.amax(dim=(0, 2)) + 1
        mask = batch.attention_mask
        if which != list(range(len(first))):
            index = torch.tensor(which, device=policy.device)
            cache.batch_select_indices(index)
            hidden, mask, position = hidden[index], mask[index], position[index]
        return hidden, cache, mask, position

    def _sample(self, rows: Sequence[int], hidden: torch.Tensor) -> torch.Tensor:
        """Draw one token a row, shape (R,), and note its log-probability."""
        logprobs = policy_logprobs(self.policy.model.lm_head(hidden), self.policy.chat)
        temperature = torch.tensor(
            [self.requests[row].sampling.temperature for row in rows], device=logprobs.device
        )
        noise = torch.empty_like(logprobs).exponential_(generator=self.generator).log().neg()
        # The largest of log p / T + Gumbel noise is a draw from the tempered distribution.
        tokens = (
            logprobs / temperature.clamp(min=1e-6)[:, None] + noise * (temperature > 0)[:, None]
        ).argmax(-1)
        chosen = logprobs.gather(1, tokens[:, None])[:, 0].tolist()
        for row, token, logprob in zip(rows, tokens.tolist(), chosen, strict=True):
            self.tokens[row].append(token)
            self.logprobs[row].append(logprob)
        return tokens

    def _ends(self, row: int, token: int) -> bool:
        sampling = self.requests[row].sampling
        tokens = self.tokens[row]
        if token == self.policy.chat.end_id:
            self.finish[row] = "end"
            return True
        if token in self.closing[row]:
            # Longer than any stop text in tokens: each token holds at least one byte of it.
            tail = self.policy.chat.decode(tokens[-2 * max(len(stop) for stop in sampling.stop) :])
            if any(stop in tail for stop in sampling.stop):
                self.finish[row] = "stop"
                return True
        return len(tokens) >= sampling.max_new_tokens
