"""A turn as a request to vLLM, and how its answer is read: the same in this process and over HTTP.

vLLM expands placeholders itself, and would silently expand an expanded prompt again. So it gets one
placeholder per picture, and the prompt it made is compared with ours.
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
"""Added to the logits of banned tokens; vLLM accepts nothing lower. e^-100 is zero in float32."""

MOST = 1024
"""Tokens that one request can ban or allow by id: the most that vLLM's GPU runner has room for."""

DRAWN = ("stop", "length")
"""vLLM's finish reasons for a turn that it has completed."""

ATTEMPTS = 3
"""Attempts at a turn that vLLM aborts. If its two processes disagree about a cached picture, the picture has
been dropped by then, and the next attempt sends it again."""

_LABEL = "vtune-"

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Answer:
    """What vLLM returned for one turn."""

    prompt: Sequence[int]
    """The prompt as vLLM saw it, with placeholders expanded."""
    token_ids: Sequence[int]
    logprobs: Sequence[float]
    """One per token, over the tokens that could be sampled."""
    finish: str
    """One of `DRAWN`; anything else is a failure."""
    stop: object
    """The stop text or token that ended it."""
    spans: Sequence[tuple[str, int]]
    """(label of the weights, last+1 token), in order."""


class Submissions:
    """Builds requests and reads answers for one policy."""

    def __init__(self, policy: Policy) -> None:
        self._chat = policy.chat
        columns = int(policy.model.config.get_text_config().vocab_size)
        banned = {*self._chat.banned_ids, *range(len(self._chat.tokenizer), columns)}
        self._allowed = _allowed(banned, columns)

    def prompt(self, request: Request) -> list[int]:
        """The conversation with one placeholder per picture."""
        return collapsed(request.token_ids, request.pixels, image_id=self._chat.image_id)

    def sampling(self, request: Request) -> dict[str, Any]:
        """Sampling parameters under vLLM's names; overrides anything a model's own settings might change."""
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
            # Only tokens are used; text is needed only to find a stop text.
            "detokenize": bool(sampling.stop),
            "include_stop_str_in_output": True,
            "ignore_eos": True,
            "stop_token_ids": [self._chat.end_id],
        }

    def completion(self, request: Request, answer: Answer) -> Completion:
        """The turn, validated.

        Raises:
            RunFailed: If vLLM aborted the turn, saw a different prompt than the trainer will, or returned
                nothing usable.
        """
        if answer.finish not in DRAWN:
            # The policy did not end this turn: scoring it would penalise the turns before it.
            raise RunFailed(
                f"vLLM aborted a turn ({answer.finish}) after {len(answer.token_ids)} tokens",
                fix="continue with --resume; VLLM_LOGGING_LEVEL=WARNING shows what vLLM reports",
            )
        if list(answer.prompt) != list(request.token_ids):
            raise RunFailed(
                f"vLLM made {len(answer.prompt)} tokens of a prompt that has "
                f"{len(request.token_ids)} in vtune",
                fix="it must not resize pictures: --mm-processor-kwargs '{\"do_resize\": false}'",
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
            raise RunFailed(
                "vLLM did not report which weights sampled each token", fix="use vllm 0.32 or 0.33"
            )
        return Completion(tuple(answer.token_ids), tuple(answer.logprobs), finish, tuple(versions))


def _allowed(banned: set[int], columns: int) -> dict[str, Any]:
    """Keeps the policy from sampling banned tokens, under vLLM's names: the shorter of two lists.

    Raises:
        RunFailed: If both lists are too long.
    """
    if len(banned) <= MOST:
        return {"logit_bias": dict.fromkeys(sorted(banned), BAN)}
    allowed = [token for token in range(columns) if token not in banned]
    if len(allowed) <= MOST:
        return {"allowed_token_ids": allowed}
    raise RunFailed(
        f"{len(banned)} of the model's {columns} tokens must not be sampled, but vLLM bans at most {MOST}",
        fix="cut the model's vocabulary to its tokenizer's, or set rollout.engine=transformers",
    )


class Kept(Generic[P]):
    """A cache of values computed from recently used pictures.

    Args:
        room: Size limit in bytes.
        size: Bytes of the value for one picture.
    """

    def __init__(self, room: int, size: Callable[[P], int]) -> None:
        self._room = room
        self._size = size
        self._held = 0
        self._kept: OrderedDict[int, tuple[Pixels, P]] = OrderedDict()
        self._making: dict[int, asyncio.Task[P]] = {}

    async def of(self, pixels: Pixels, make: Callable[[Pixels], Awaitable[P]]) -> P:
        """The cached value for a picture, or else compute it: only once, however many callers wait."""
        found = self.get(pixels)
        if found is not None:
            return found
        making = self._making.get(id(pixels))
        if making is None:
            making = self._making[id(pixels)] = asyncio.create_task(self._made(pixels, make))
        # A caller that stops waiting does not cancel it for the others.
        return await asyncio.shield(making)

    async def _made(self, pixels: Pixels, make: Callable[[Pixels], Awaitable[P]]) -> P:
        try:
            return self.put(pixels, await make(pixels))
        finally:
            del self._making[id(pixels)]

    def get(self, pixels: Pixels) -> P | None:
        """The cached value for a picture, if any."""
        found = self._kept.get(id(pixels))
        if found is None:
            return None
        self._kept.move_to_end(id(pixels))
        return found[1]

    def put(self, pixels: Pixels, made: P) -> P:
        """Cache a value; the pixels are kept too, or their `id` might be reused for others."""
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
        RunFailed: If placeholders and pictures do not match: a bug, since both come from one transcript.
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
    """A sampling seed in [0, 2^63)."""
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def label_of(version: int) -> str:
    """The label in vLLM for the weights after `version` training steps."""
    return f"{_LABEL}{version}"


def version_of(label: str) -> int:
    """The number of steps in a label; -1 for a label that is not ours, such as before the first transfer."""
    number = label.removeprefix(_LABEL)
    return int(number) if label.startswith(_LABEL) and number.isdecimal() else -1
