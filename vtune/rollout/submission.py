"""A turn as a request to vLLM, and how its answer is read: the same in this process and over HTTP.

vLLM expands placeholders itself, and would expand an expanded prompt once more without a word. So it gets one
placeholder per picture, and what it made of the prompt is compared with ours.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from vtune.errors import RunFailed
from vtune.models.pictures import Pixels
from vtune.models.policy import Policy
from vtune.rollout.engine import Completion, Finish, Request

BAN = -100.0
"""Added to the logit of what the policy may not say; vLLM accepts nothing lower. e^-100 is zero in float32.
"""

MOST = 1024
"""Tokens that one request can ban or allow by name: the most that vLLM's runner on GPUs has room for."""

DRAWN = ("stop", "length")
"""How vLLM says that a turn ended which it has drawn."""

ATTEMPTS = 3
"""At a turn that vLLM gives up. Where its two ends disagree about a picture that both keep, it has let go of
it by then, and the next attempt brings the picture along."""

_LABEL = "vtune-"

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Answer:
    """What vLLM returned for one turn."""

    prompt: Sequence[int]
    """The prompt as it saw it, placeholders expanded."""
    token_ids: Sequence[int]
    logprobs: Sequence[float]
    """One per token, over what could be sampled."""
    finish: str
    """One of `DRAWN`; anything else is a failure."""
    stop: object
    """Which stop text or token ended it."""
    spans: Sequence[tuple[str, int]]
    """(label of the weights, last+1 token), in order."""


class Submissions:
    """Writes requests and reads answers for one policy."""

    def __init__(self, policy: Policy) -> None:
        self._chat = policy.chat
        columns = int(policy.model.config.get_text_config().vocab_size)
        banned = {*self._chat.banned_ids, *range(len(self._chat.tokenizer), columns)}
        self._allowed = _allowed(banned, columns)

    def prompt(self, request: Request) -> list[int]:
        """The conversation with one placeholder per picture."""
        return collapsed(request.token_ids, request.pixels, image_id=self._chat.image_id)

    def sampling(self, request: Request) -> dict[str, Any]:
        """Sampling parameters by vLLM's names; everything that a model's own settings might change is set."""
        sampling = request.sampling
        return {
            "temperature": sampling.temperature,
            "top_p": 1.0,
            "top_k": 0,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "max_tokens": sampling.max_new_tokens,
            "seed": seed_of(request.key),
            "logprobs": 0,
            **self._allowed,
            "stop": list(sampling.stop),
            # Tokens are all that counts here; only a stop text has to be looked for in text.
            "detokenize": bool(sampling.stop),
            "include_stop_str_in_output": True,
            "ignore_eos": True,
            "stop_token_ids": [self._chat.end_id],
        }

    def completion(self, request: Request, answer: Answer) -> Completion:
        """The turn, checked.

        Raises:
            RunFailed: If vLLM gave the turn up, saw another prompt than the trainer will, or says nothing
                usable.
        """
        if answer.finish not in DRAWN:
            # Such a turn is no work of the policy: to score it would punish the turns before.
            raise RunFailed(
                f"vLLM gave a turn up ({answer.finish}) after {len(answer.token_ids)} tokens",
                fix="continue with --resume; VLLM_LOGGING_LEVEL=WARNING shows what vLLM says of it",
            )
        if list(answer.prompt) != list(request.token_ids):
            raise RunFailed(
                f"vLLM made {len(answer.prompt)} tokens of a prompt that has {len(request.token_ids)} here",
                fix="it has to take pictures as they come: --mm-processor-kwargs '{\"do_resize\": false}'",
            )
        if len(answer.logprobs) != len(answer.token_ids):
            raise RunFailed("vLLM did not give one log-probability per token", fix="use vllm 0.32 or 0.33")
        finish: Finish = "length"
        if answer.finish == "stop":
            finish = "end" if answer.stop == self._chat.end_id else "stop"
        versions: list[int] = []
        for label, end in answer.spans:
            versions += [version_of(label)] * (end - len(versions))
        if len(versions) != len(answer.token_ids):
            raise RunFailed("vLLM did not say which weights drew each token", fix="use vllm 0.32 or 0.33")
        return Completion(tuple(answer.token_ids), tuple(answer.logprobs), finish, tuple(versions))


def _allowed(banned: set[int], columns: int) -> dict[str, Any]:
    """What keeps a policy from the tokens that it may not say, by vLLM's names: the shorter of two lists.

    Raises:
        RunFailed: If both are too long.
    """
    if len(banned) <= MOST:
        return {"logit_bias": dict.fromkeys(sorted(banned), BAN)}
    allowed = [token for token in range(columns) if token not in banned]
    if len(allowed) <= MOST:
        return {"allowed_token_ids": allowed}
    raise RunFailed(
        f"{len(banned)} of the model's {columns} tokens may not be drawn, and vLLM bans {MOST} at most",
        fix="cut the model's vocabulary to its tokenizer's, or set rollout.engine=transformers",
    )


class Kept(Generic[P]):
    """What was computed from recently used pictures.

    Args:
        room: Bytes that may be kept.
        size: Bytes of what is made of one.
    """

    def __init__(self, room: int, size: Callable[[P], int]) -> None:
        self._room = room
        self._size = size
        self._held = 0
        self._kept: OrderedDict[int, tuple[Pixels, P]] = OrderedDict()
        self._making: dict[int, asyncio.Task[P]] = {}

    async def of(self, pixels: Pixels, make: Callable[[Pixels], Awaitable[P]]) -> P:
        """What was kept for a picture, or else what is computed now: once, however many ask meanwhile."""
        found = self.get(pixels)
        if found is not None:
            return found
        making = self._making.get(id(pixels))
        if making is None:
            making = self._making[id(pixels)] = asyncio.create_task(self._made(pixels, make))
        # Whoever gives up waiting does not end it for the others.
        return await asyncio.shield(making)

    async def _made(self, pixels: Pixels, make: Callable[[Pixels], Awaitable[P]]) -> P:
        try:
            return self.put(pixels, await make(pixels))
        finally:
            del self._making[id(pixels)]

    def get(self, pixels: Pixels) -> P | None:
        """What was kept for a picture."""
        found = self._kept.get(id(pixels))
        if found is None:
            return None
        self._kept.move_to_end(id(pixels))
        return found[1]

    def put(self, pixels: Pixels, made: P) -> P:
        """Keep it; the pixels stay too, or their number might come to mean others."""
        self._kept[id(pixels)] = (pixels, made)
        self._held += self._bytes(pixels, made)
        while self._held > self._room and len(self._kept) > 1:
            _, (old, made_of_it) = self._kept.popitem(last=False)
            self._held -= self._bytes(old, made_of_it)
        return made

    def _bytes(self, pixels: Pixels, made: P) -> int:
        return pixels.levels.nbytes + self._size(made)


def collapsed(token_ids: Sequence[int], pixels: Sequence[Pixels], *, image_id: int) -> list[int]:
    """The same conversation with one placeholder per picture.

    Raises:
        RunFailed: If placeholders and pictures do not match: a bug, for both come from one transcript.
    """
    short: list[int] = []
    pictures = iter(pixels)
    index = 0
    while index < len(token_ids):
        short.append(token_ids[index])
        if token_ids[index] != image_id:
            index += 1
            continue
        picture = next(pictures, None)
        if picture is None or any(t != image_id for t in token_ids[index : index + picture.tokens]):
            raise RunFailed(f"the placeholders at token {index} match no picture")
        index += picture.tokens
    if index != len(token_ids) or next(pictures, None) is not None:
        raise RunFailed("placeholders and pictures of a conversation do not match")
    return short


def seed_of(key: tuple[int, ...]) -> int:
    """A seed in [0, 2^63) for a draw."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def label_of(version: int) -> str:
    """The label at vLLM for the weights after `version` training steps."""
    return f"{_LABEL}{version}"


def version_of(label: str) -> int:
    """The number of steps in a label; -1 for one that is not ours, as before the first transfer."""
    number = label.removeprefix(_LABEL)
    return int(number) if label.startswith(_LABEL) and number.isdecimal() else -1
