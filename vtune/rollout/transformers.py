"""Rollouts with the training model itself through transformers: no server, no second copy of the weights."""

import asyncio
import hashlib
import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from vtune.errors import RunFailed
from vtune.models.attention import use_tree_attention
from vtune.models.batch import Row, image_features
from vtune.models.decoder import Decoder
from vtune.models.decoding import KeyValues
from vtune.models.packed import pack
from vtune.models.policy import Policy, policy_logprobs
from vtune.models.rotation import signed
from vtune.rollout.drawn_rows import DrawnRows
from vtune.rollout.engine import Completion, Request, Weights
from vtune.rollout.stopwatch import Stopwatch

AHEAD = 64
"""Number of tokens whose rotary embeddings are computed at a time."""

LEAST = 1e-6
"""The temperature used for 0."""

_Asked = tuple[Request, "asyncio.Future[Completion]"]
"""A pending request and its future."""


class TransformersEngine:
    """Generates turns in batches. A batch starts when every running trajectory of a cohort waits for a turn.

    While one cohort's turns are generated, the tools of the others run.

    Within a batch, a prefix that several conversations share is prefilled once, and each distinct picture is
    encoded once, however many rollouts share it. A finished row leaves the batch and is returned at once: its
    code runs while the others are generated.

    Args:
        policy: The model; its weights may change between batches.
        max_batch: Most rows generated at the same time.
        waiting: Covered while a batch is generated.
        threads: CPU threads during generation; None: unchanged.
        apart: Whether every row gets random numbers from its own key, whether its request asks for that or
            not. A turn then does not depend on what else is in the batch (up to arithmetic: sums in another
            batch may differ in their last bit).
    """

    cohorts = 2

    def __init__(
        self,
        policy: Policy,
        *,
        max_batch: int,
        waiting: Stopwatch | None = None,
        threads: int | None = None,
        apart: bool = False,
    ) -> None:
        use_tree_attention(policy.model)
        self._policy = policy
        self._max_batch = max_batch
        self._threads = threads
        self._apart = apart
        self._stopwatch = waiting or Stopwatch()
        self._running = [0] * self.cohorts
        self._waiting: list[list[_Asked]] = [[] for _ in range(self.cohorts)]
        self._drawing: asyncio.Task[None] | None = None
        self._asked: Sequence[_Asked] = ()
        """The batch being generated, or the last one generated."""
        self._closers: dict[str, torch.Tensor] = {}
        self._version = 0

    def join(self, cohort: int) -> None:
        """A trajectory starts: batches of its cohort wait for it from now on."""
        self._running[cohort] += 1

    def leave(self, cohort: int) -> None:
        """A trajectory has ended: batches no longer wait for it."""
        self._running[cohort] -= 1
        self._draw_if_all_wait()

    async def generate(self, request: Request) -> Completion:
        """Generate one turn, together with those of all other running trajectories of its cohort."""
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._waiting[request.cohort].append((request, future))
        self._draw_if_all_wait()
        return await future

    async def take(self, weights: Weights, version: int) -> None:
        """Only record the version: the weights are those being trained."""
        self._version = version

    async def rest(self) -> None:
        """Does nothing: there is only one copy of the weights."""

    async def aclose(self) -> None:
        """Does nothing: nothing was started."""

    def _draw_if_all_wait(self) -> None:
        if not self._drawing and (asked := self._ready()):
            self._drawing = asyncio.get_running_loop().create_task(self._draw(asked))
            self._drawing.add_done_callback(self._drawn)

    def _ready(self) -> "Sequence[_Asked]":
        """The pending turns of a cohort whose trajectories all wait, in order; empty if there is none."""
        for cohort, waiting in enumerate(self._waiting):
            # A cancelled trajectory (Ctrl-C, a failure in another one) no longer waits.
            waiting[:] = [item for item in waiting if not item[1].done()]
            if waiting and len(waiting) >= self._running[cohort]:
                # The order in which tools returned must not matter, so rows are sorted by key.
                asked = sorted(waiting, key=lambda item: item[0].key)
                waiting.clear()
                return asked
        return ()

    def _drawn(self, task: "asyncio.Task[None]") -> None:
        self._drawing = None
        # Retrieved even if nobody waits any more: asyncio would report it as an exception never retrieved.
        error = None if task.cancelled() else task.exception()
        for _, future in self._asked:
            if future.done():
                continue
            if error is None:
                future.cancel()
            else:
                # Raised in these trajectories; the rollout's task group cancels the others.
                future.set_exception(error)
        self._draw_if_all_wait()

    async def _draw(self, asked: "Sequence[_Asked]") -> None:
        """Generate for one cohort after another, as long as one is ready."""
        model = self._policy.model
        training = model.training
        model.eval()
        try:
            with self._stopwatch.covered(), _threads(self._threads):
                # No pause in between: the tools of one cohort run while the next is generated, not before it.
                while asked:
                    self._asked = asked
                    for start in range(0, len(asked), self._max_batch):
                        await self._draw_batch(asked[start : start + self._max_batch])
                    asked = self._ready()
        except torch.OutOfMemoryError as error:
            raise RunFailed(
                f"a GPU ran out of memory while generating turns: {str(error).partition('. GPU')[0]}",
                fix=f"lower rollout.max_batch (at most {self._max_batch} turns are generated "
                "together) or images.max_pixels, or generate with vLLM (rollout.engine: vllm)",
            ) from error
        finally:
            model.train(training)

    async def _draw_batch(self, asked: "Sequence[_Asked]") -> None:
        requests = [request for request, _ in asked]
        rows = DrawnRows(self._policy.chat, requests, [self._closing(request) for request in requests])
        apart = self._apart or any(request.apart for request in requests)
        for ended in _Draw(self._policy, requests, rows, apart=apart).steps():
            for row in ended:
                if not asked[row][1].done():
                    asked[row][1].set_result(rows.completion(row, self._version))
            if all(future.done() for _, future in asked):
                # Also if all were cancelled: nobody needs the rest.
                return
            # Let trajectories that wait for the sandbox continue between two tokens.
            await asyncio.sleep(0)

    def _closing(self, request: Request) -> torch.Tensor:
        """Which ids can complete a stop text of a request: bool, (V,); equal stops share one tensor."""
        last = "".join(sorted({stop[-1] for stop in request.sampling.stop}))
        if last not in self._closers:
            chat = self._policy.chat
            words = chat.tokenizer.batch_decode([[i] for i in range(len(chat.tokenizer))])
            # A non-ASCII character may be split over several tokens, none of which decodes to it alone.
            ends = {*last} if last.isascii() else {*last, "\ufffd"}
            closing = torch.zeros(self._policy.model.config.get_text_config().vocab_size, dtype=torch.bool)
            closing[[i for i, word in enumerate(words) if ends & set(word)]] = True
            self._closers[last] = closing.to(self._policy.device)
        return self._closers[last]


class _Draw:
    """The state of one batch during generation: R rows, C columns of cache."""

    def __init__(self, policy: Policy, requests: Sequence[Request], rows: DrawnRows, *, apart: bool) -> None:
        self.policy = policy
        self.requests = requests
        self.rows = rows
        temperatures = [request.sampling.temperature for request in requests]
        self.greedy = 0 in temperatures
        self.at_one = set(temperatures) == {1}
        # For greedy rows, so low that the likeliest token gets all of the probability mass.
        self.temperature = torch.tensor(temperatures, device=policy.device)[:, None].clamp(min=LEAST)
        self.chances: torch.Tensor | None = None
        """Uniform numbers of the unfinished rows, (R, T) for at most T tokens, if each row has its own."""
        if apart:
            most = max(request.sampling.max_new_tokens for request in requests)
            own = [torch.rand(most, dtype=torch.float64, generator=_seeded([r.key])) for r in requests]
            self.chances = torch.stack(own).to(policy.device)
        self.generator = _seeded([request.key for request in requests], policy.device)

    @torch.inference_mode()
    def steps(self) -> Iterator[list[int]]:
        """Generate token by token; after each token, yields the rows that have ended."""
        hidden, kept, position = self._prefill()
        decoder = Decoder(self.policy.model)
        rotation: list[torch.Tensor] = []
        for number in itertools.count():
            drawn, logprobs, entropies = self._sample(hidden)
            ended, on = self.rows.take(drawn, logprobs, entropies)
            yield ended
            if not self.rows.drawing:
                return
            if on is not None:
                drawn, position, self.temperature = drawn[on], position[on], self.temperature[on]
                rotation = [part[on] for part in rotation]
                self.chances = self.chances if self.chances is None else self.chances[on]
                kept.select(on)
            if number % AHEAD == 0:
                rotation = self._rotation(hidden, position + number)
            cosine, sine = (part[:, number % AHEAD, None] for part in rotation)
            hidden = decoder.step(drawn, cosine, sine, kept)

    def _prefill(self) -> tuple[torch.Tensor, KeyValues, torch.Tensor]:
        """Hidden state of each row's last token (R, D), keys and values, and next position (R,)."""
        policy = self.policy
        packed = pack(
            [Row(request.token_ids, request.pixels) for request in self.requests],
            image_id=policy.chat.image_id,
            merge=policy.merge,
            device=policy.device,
            positions_of=policy.family.positions,
        )
        kept = KeyValues(packed.places, policy.model.dtype)
        hidden = policy.model.model(
            input_ids=packed.input_ids,
            position_ids=packed.position_ids,
            mm_encoder_outputs=image_features(policy.model, packed.pictures),
            layout=packed.layout,
            kept=kept,
            use_cache=False,
        ).last_hidden_state[0]
        last = torch.stack([places[-1] for places in packed.places])
        return hidden[last], kept, packed.following

    def _rotation(self, hidden: torch.Tensor, position: torch.Tensor) -> list[torch.Tensor]:
        """Cosines and signed sines, (R, AHEAD, D) each, of the next positions, from `position` (R,) on."""
        positions = (position[:, None] + torch.arange(AHEAD, device=position.device)).expand(3, -1, -1)
        cosine, sine = self.policy.model.model.language_model.rotary_emb(hidden, positions)
        return [cosine, signed(sine)]

    def _sample(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """A token per row, its log-probability, and the entropy of the policy's distribution; (R,) each."""
        logprobs = policy_logprobs(self.policy.model.lm_head(hidden), self.policy.chat)
        mass = torch.softmax(logprobs, dim=-1)
        shares = mass if self.at_one else torch.softmax(logprobs / self.temperature, dim=-1)
        # Inverse CDF sampling; in float64, since single probabilities are small.
        shares = shares.cumsum(-1, dtype=torch.float64)
        if self.chances is None:
            uniform = torch.rand(
                len(shares), 1, dtype=torch.float64, device=logprobs.device, generator=self.generator
            )
        else:
            # All unfinished rows of a batch have the same length.
            uniform = self.chances[:, self.rows.length, None]
        tokens = torch.searchsorted(shares, uniform * shares[:, -1:], right=True)
        if self.greedy:
            tokens = torch.where(self.temperature > LEAST, tokens, logprobs.argmax(-1, keepdim=True))
        # If probabilities are NaN, the search ends after the last token.
        tokens.clamp_(max=logprobs.shape[1] - 1)
        return tokens[:, 0], logprobs.gather(1, tokens)[:, 0], entropy_of(logprobs, mass)


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    """Let torch use this many CPU threads inside the block; None: unchanged. Not reentrant."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def entropy_of(logprobs: torch.Tensor, mass: torch.Tensor) -> torch.Tensor:
    """Entropy of each row in nats, (R,), from log-probabilities (R, V) that are -inf for banned tokens.

    Args:
        logprobs: The log-probabilities; they are overwritten.
        mass: The probabilities, (R, V).
    """
    return -logprobs.clamp_(min=torch.finfo(logprobs.dtype).min).mul_(mass).sum(-1)


def _seeded(keys: Sequence[tuple[int, ...]], device: torch.device | str = "cpu") -> torch.Generator:
    """A generator whose numbers depend only on these keys."""
    digest = hashlib.blake2b(repr(keys).encode(), digest_size=8).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest, "big") >> 1)
