"""Rollouts with the training model itself, through transformers: no server, no second copy of the weights."""

import asyncio
import functools
import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from vtune.models.batch import Row, collate, image_features
from vtune.models.policy import Policy, policy_logprobs
from vtune.rollout.engine import Completion, Finish, Request, Weights
from vtune.rollout.stopwatch import Stopwatch

_Asked = tuple[Request, "asyncio.Future[Completion]"]
"""A turn that somebody waits for."""


class TransformersEngine:
    """Draws turns in batches. A batch starts when every running trajectory of a cohort waits for a turn.

    While one cohort is drawn, the tools of the others run.

    Within a batch each distinct prompt is prefilled once, and each distinct picture encoded once,
    however many rollouts share it. A row that has ended leaves the batch and is handed over at once: what its
    code does happens while the others are drawn.

    Args:
        policy: The model; its weights may change between batches.
        max_batch: Rows drawn at the same time, at most.
        waiting: Covered while a batch is drawn.
    """

    cohorts = 2

    def __init__(self, policy: Policy, *, max_batch: int, waiting: Stopwatch | None = None) -> None:
        self._policy = policy
        self._max_batch = max_batch
        self._stopwatch = waiting or Stopwatch()
        self._running = [0] * self.cohorts
        self._waiting: list[list[_Asked]] = [[] for _ in range(self.cohorts)]
        self._drawing: asyncio.Task[None] | None = None
        self._closers: dict[str, frozenset[int]] = {}
        self._version = 0

    def join(self, cohort: int) -> None:
        """A trajectory starts to run: batches of its cohort wait for it from now on."""
        self._running[cohort] += 1

    def leave(self, cohort: int) -> None:
        """A trajectory has ended: batches no longer wait for it."""
        self._running[cohort] -= 1
        self._draw_if_all_wait()

    async def generate(self, request: Request) -> Completion:
        """Draw one turn, together with those of all other running trajectories of its cohort."""
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._waiting[request.cohort].append((request, future))
        self._draw_if_all_wait()
        return await future

    async def take(self, weights: Weights, version: int) -> None:
        """Only note the version: the weights are those of the training itself."""
        self._version = version

    async def rest(self) -> None:
        """Nothing to give back: there is one copy of the weights."""

    async def aclose(self) -> None:
        """Nothing to end."""

    def _draw_if_all_wait(self) -> None:
        if self._drawing:
            return
        for cohort, waiting in enumerate(self._waiting):
            # A trajectory that was cancelled (Ctrl-C, a failure next door) waits no longer.
            waiting[:] = [item for item in waiting if not item[1].done()]
            if waiting and len(waiting) >= self._running[cohort]:
                # The order in which tools returned must not matter: rows are sorted by who they are.
                asked = sorted(waiting, key=lambda item: item[0].key)
                waiting.clear()
                self._drawing = asyncio.get_running_loop().create_task(self._draw(asked))
                self._drawing.add_done_callback(functools.partial(self._drawn, asked))
                return

    def _drawn(self, asked: "Sequence[_Asked]", task: "asyncio.Task[None]") -> None:
        self._drawing = None
        for _, future in asked:
            if future.done():
                continue
            error = None if task.cancelled() else task.exception()
            if error is None:
                future.cancel()
            else:
                # Raised in the trajectories; the task group of the rollout ends the others.
                future.set_exception(error)
        self._draw_if_all_wait()

    async def _draw(self, asked: "Sequence[_Asked]") -> None:
        model = self._policy.model
        training = model.training
        model.eval()
        try:
            with self._stopwatch.covered():
                for start in range(0, len(asked), self._max_batch):
                    await self._draw_batch(asked[start : start + self._max_batch])
        finally:
            model.train(training)

    async def _draw_batch(self, asked: "Sequence[_Asked]") -> None:
        requests = [request for request, _ in asked]
        batch = _Draw(self._policy, requests, [self._closing_ids(request) for request in requests])
        for ended in batch.steps():
            for row in ended:
                if not asked[row][1].done():
                    asked[row][1].set_result(batch.completion(row, self._version))
            if all(future.done() for _, future in asked):
                # Also where all were cancelled: nobody wants the rest.
                return
            # Whoever waits for the sandbox goes on between two tokens.
            await asyncio.sleep(0)

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

    @torch.no_grad()
    def steps(self) -> Iterator[list[int]]:
        """Draw token by token; after each, the rows that have ended."""
        rows = list(range(len(self.requests)))
        hidden, cache, mask, position = self._prefill()
        while True:
            drawn = self._sample(rows, hidden)
            keep = [
                i
                for i, (row, token) in enumerate(zip(rows, drawn.tolist(), strict=True))
                if not self._ends(row, token)
            ]
            left = [rows[i] for i in keep]
            yield [row for row in rows if row not in left]
            if not left:
                return
            if len(left) < len(rows):
                index = torch.tensor(keep, device=drawn.device)
                rows = left
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

    def completion(self, row: int, version: int) -> Completion:
        """The turn of a row that has ended."""
        tokens = tuple(self.tokens[row])
        return Completion(tokens, tuple(self.logprobs[row]), self.finish[row], (version,) * len(tokens))

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
            mm_encoder_outputs=image_features(policy.model, batch.pictures),
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
