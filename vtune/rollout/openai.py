"""Rollouts by a model behind an OpenAI-compatible endpoint: messages and pictures out, text back."""

import base64
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any
from urllib.parse import urlsplit

from PIL import Image
from pydantic import Field

from vtune.errors import RecipeError, ServiceError
from vtune.judge.budget import Prices
from vtune.judge.completed import LENGTH, Completed
from vtune.judge.completions import Completions, Refused, Unreadable
from vtune.models.pictures import PictureReader, PixelBudget, Pixels
from vtune.models.served import PREFIX
from vtune.rollout.engine import Completion, Engine, Finish, Request, Weights
from vtune.rollout.submission import Kept, seed_of
from vtune.rollout.usage import Ledger, Used
from vtune.rollout.words import Screen, Words
from vtune.schema.decode import png_of
from vtune.schema.message import IMAGE, Message
from vtune.sections import Strict
from vtune.tools.calls import OPEN

KEPT = 1 << 28
"""Size limit of the cache of encoded pictures, in bytes; ours."""

QUALITIES = (95, 85, 75)
"""JPEG qualities tried in this order for a picture that is too large as PNG; ours."""

SEEDS = 2**31
"""Upper bound of seeds: some gateways accept only signed 32-bit numbers."""

FILTERED = "content_filter"
"""The `finish_reason` of a reply that the endpoint withheld, entirely or from some point on."""
IN_TEXT = (OPEN, "<code>", "<answer>")
"""Marks of a text that contains one of our calls, or an answer."""
CALLED = ("tool_calls", "function_call")
"""The `finish_reason` of a reply from which the endpoint has extracted tool calls. It was offered no tools:
ours are described in the prompt, and called in the text."""

BLANKS = "white space between pictures"
"""Listed among the settings that an endpoint refuses: Anthropic's API takes no text of white space alone."""
_BLANK_REFUSED = re.compile(r"white-?\s?space|\bempty\b", re.IGNORECASE)

_TAG = re.compile(r"</(\w+)>")
_ON = re.compile(r"</(?:think|thinking|answer)>")
"""After an opening tag, one of these shows that the tag was only mentioned: the thoughts or answer went
on."""


class Served(Strict):
    """How a model behind an endpoint is queried, in addition to the settings of `rollout`."""

    api_key_env: str | None = "OPENAI_API_KEY"
    """Name of the environment variable that holds the key; null if the endpoint needs none."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    retries: int = Field(default=4, ge=0)
    """Retries after a failed connection, a timeout, a status 408, 409, 429 or 5xx, or a body of status 200
    that is not a completion."""
    timeout_s: float = Field(default=600.0, gt=0)
    """Per attempt, in seconds."""
    side_multiple: int = Field(default=1, gt=0)
    """Sides of pictures are multiples of this many pixels: 28 for a served Qwen2.5-VL, 32 for a Qwen3-VL, so
    that the server resizes nothing and boxes keep their meaning."""
    picture_mb: float = Field(default=5.0, gt=0)
    """Limit on one encoded picture in MiB: PNG if it fits, else JPEG. 5 is the lowest known gateway limit."""
    prices: Prices | None = None
    """Null: no cost is reported."""


@dataclass(frozen=True, slots=True)
class Address:
    """The URL of an endpoint, and a model's name there."""

    url: str
    model: str


def address_of(name: str) -> Address:
    """The address that `openai:URL#model` names.

    Raises:
        RecipeError: If it does not have that form, or contains secrets that belong in the environment.
    """
    url, _, model = name.removeprefix(PREFIX).partition("#")
    example = f"{PREFIX}http://localhost:8000/v1#Qwen/Qwen2.5-VL-7B-Instruct"
    try:
        parts = urlsplit(url)
        whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        whole = False
    if not whole or not model:
        raise RecipeError(f"{_without_secrets(name)} names no endpoint and model", fix=f"write {example}")
    if parts.username is not None or parts.password is not None or parts.query:
        raise RecipeError(
            f"the URL of {parts.hostname} holds a user, a password or a query, and results would show it",
            fix=f"leave them out; the key comes from the variable that `openai.api_key_env` names: {example}",
        )
    return Address(url.rstrip("/"), model)


def _without_secrets(name: str) -> str:
    """The name for use in a message, without anything before an @ or after a question mark."""
    return re.sub(r"\?[^#]*", "?…", re.sub(r"//[^/@]*@", "//…@", name))


@dataclass(frozen=True, slots=True)
class ServedPolicy:
    """A policy whose weights live elsewhere; takes the place of a `Policy` where nothing is trained."""

    chat: Words
    pictures: PictureReader

    @classmethod
    def of(cls, budget: PixelBudget, served: Served) -> "ServedPolicy":
        """A policy that sees pictures within a pixel budget."""
        return cls(Words(), PictureReader(Screen(served.side_multiple), budget))


class OpenAIEngine(Engine):
    """Generates turns through an endpoint; `async with` opens it.

    A turn without a reply ends its conversation, which is unscored. There are no token ids and no
    log-probabilities.

    Args:
        address: Where the model is.
        served: How it is queried.
        pictures: The picture reader, shared with the agent.
        max_batch: Turns that may be generated at the same time.
        ledger: Records the usage of each turn; None: it is not recorded.
    """

    def __init__(
        self,
        address: Address,
        served: Served,
        pictures: PictureReader,
        *,
        max_batch: int,
        ledger: Ledger | None = None,
    ) -> None:
        self._served = served
        self._pictures = pictures
        self._ledger = ledger
        self._urls: Kept[str] = Kept(KEPT, len)
        self._takes_blanks = True
        self._completions = Completions(
            "the model",
            address.url,
            address.model,
            concurrency=max_batch,
            retries=served.retries,
            timeout_s=served.timeout_s,
            api_key_env=served.api_key_env,
            fix="check that the endpoint is up and serves this model; if the conversation is too long "
            "for it, lower rollout.max_tokens or images.max_pixels",
            no_key="; `openai.api_key_env` can name another variable, or be null for no key",
        )

    @property
    def refused(self) -> frozenset[str]:
        """Settings that the model does not accept and that are therefore omitted."""
        return self._completions.refused | (frozenset() if self._takes_blanks else {BLANKS})

    async def open(self) -> None:
        """Prepare the client, without connecting yet.

        Raises:
            RecipeError: If the key is not set.
        """
        await self._completions.__aenter__()

    async def generate(self, request: Request) -> Completion:
        """Generate one turn.

        Raises:
            ServiceError: If no reply comes.
            RecipeError: If a picture is too large to be sent.
        """
        sampling = request.sampling
        # Endpoints neither return a stop text nor say that one ended the turn; only for tags can this be
        # inferred.
        stop = [text for text in sampling.stop if _TAG.fullmatch(text)]
        settings: dict[str, Any] = {
            "temperature": sampling.temperature,
            "seed": seed_of(request.key) % SEEDS,
            "stop": stop,
            "top_p": self._served.top_p,
            "max_tokens": sampling.max_new_tokens,
        }
        if not stop:
            del settings["stop"]
        urls = [await self._urls.of(pixels, self._data_url) for pixels in request.pixels]
        reply = await self._reply(request.messages, urls, settings)
        self._note(reply)
        if not reply.finish:
            raise ServiceError("the model's reply has no `choices`", where=self._completions.where)
        if reply.finish == FILTERED and not reply.text:
            why = "the endpoint's filter withheld the model's reply"
            raise ServiceError(why, where=self._completions.where, fix="ask an endpoint without that filter")
        if reply.finish in CALLED and not any(mark in reply.text for mark in IN_TEXT):
            why = "the endpoint gave the model's tool call apart from its text"
            fix = "serve the model without a tool-call parser: vtune describes its tools in the prompt"
            raise ServiceError(why, where=self._completions.where, fix=fix)
        if reply.thoughts and reply.finish != LENGTH and not reply.text.strip():
            why = "the endpoint gave all that the model wrote as thoughts (`reasoning_content`), and no text"
            fix = "serve the model without a reasoning parser: vtune reads the answer after its thoughts"
            raise ServiceError(why, where=self._completions.where, fix=fix)
        text, finish = said(reply, sampling.stop)
        return Completion(
            token_ids=(),
            logprobs=(),
            finish=finish,
            weight_versions=(),
            text=text,
            context=(reply.input or 0) + (reply.output or 0),
        )

    async def _reply(
        self, messages: Sequence[Message], urls: Sequence[str], settings: dict[str, Any]
    ) -> Completed:
        """The reply to a conversation; texts of white space alone are left out if the endpoint refuses them.

        Raises:
            ServiceError: If no reply comes.
        """
        while True:
            blanks = self._takes_blanks
            turns = [_message(one, [urls[at] for at in one.images], blanks=blanks) for one in messages]
            try:
                return await self._completions.create(turns, settings, lost=self._note_lost)
            except Unreadable:
                self._note_lost()
                raise
            except Refused as error:
                if not (blanks and _has_blanks(turns) and _BLANK_REFUSED.search(error.what)):
                    raise
                self._takes_blanks = False

    async def take(self, weights: Weights, version: int) -> None:
        """Refuse: a remote model is not trained.

        Raises:
            RecipeError: Always.
        """
        raise RecipeError("weights cannot be given to an endpoint", fix="generate with transformers or vllm")

    async def rest(self) -> None:
        """Does nothing: the endpoint has its own devices."""

    async def aclose(self) -> None:
        """Close the connection."""
        await self._completions.__aexit__()

    def _note(self, reply: Completed) -> None:
        if self._ledger is None:
            return
        self._ledger.add(
            Used(
                input=reply.input,
                cached=reply.cached,
                output=reply.output,
                model=reply.model,
                fingerprint=reply.fingerprint,
                without=sorted(self.refused),
            )
        )

    def _note_lost(self) -> None:
        """Record a turn of unknown usage: its answer could not be read."""
        if self._ledger is not None:
            without = sorted(self.refused)
            self._ledger.add(
                Used(input=None, cached=0, output=None, model=None, fingerprint=None, without=without)
            )

    async def _data_url(self, pixels: Pixels) -> str:
        return await self._pictures.beside(self._encoded, pixels)

    def _encoded(self, pixels: Pixels) -> str:
        kind, data = encoded(self._pictures.shown(pixels), int(self._served.picture_mb * 2**20))
        return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def encoded(picture: Image.Image, most: int) -> tuple[str, bytes]:
    """(format, bytes) of a picture in at most `most` bytes: PNG, which keeps every pixel, if that fits.

    Raises:
        RecipeError: If no format is small enough.
    """
    whole = png_of(picture)
    if len(whole) <= most:
        return "png", whole
    for quality in QUALITIES:
        out = io.BytesIO()
        picture.save(out, "JPEG", quality=quality, subsampling=0)
        if out.tell() <= most:
            return "jpeg", out.getvalue()
    raise RecipeError(
        f"a picture of {picture.width} x {picture.height} takes {out.tell()} bytes as JPEG, more than {most}",
        fix="lower images.max_pixels, or raise openai.picture_mb if the endpoint takes more",
    )


def said(reply: Completed, stops: Sequence[str]) -> tuple[str, Finish]:
    """The text of a turn including its stop text, as a token-based engine would return it; and what ended it.

    Endpoints cut off the stop text. vLLM reports which one it was; elsewhere, a turn that ended by itself
    with a tag still open (`<code>`) is assumed to have ended with the closing tag, unless its thoughts or its
    answer ended after the opening tag ("<think>No <code> is needed.</think>").
    """
    text = reply.text
    # The endpoint was not asked to stop here, or ignored it.
    ends = [text.find(stop) + len(stop) for stop in stops if stop in text]
    if ends:
        return text[: min(ends)], "stop"
    if reply.finish == "length":
        return text, "length"
    if reply.finish != "stop":  # e.g. the endpoint's content filter
        return text, "end"
    for stop in stops:
        tag = _TAG.fullmatch(stop)
        _, opening, rest = text.rpartition(f"<{tag[1]}>") if tag is not None else ("", "", "")
        if reply.stop == stop or (opening and not _ON.search(rest)):
            return text + stop, "stop"
    return text, "end"


def _message(turn: Message, urls: Sequence[str], *, blanks: bool) -> dict[str, Any]:
    """A turn in the endpoint's format, with pictures at their marks.

    Args:
        turn: The turn.
        urls: Its pictures.
        blanks: Whether a text of white space alone is sent, so that the prompt is that of a local policy.
    """
    if not urls:
        return {"role": turn.role, "content": turn.content}
    parts: list[dict[str, Any]] = []
    for piece, url in zip_longest(turn.content.split(IMAGE), urls):
        if piece if blanks else piece.strip():
            parts.append({"type": "text", "text": piece})
        if url is not None:
            parts.append({"type": "image_url", "image_url": {"url": url}})
    return {"role": turn.role, "content": parts}


def _has_blanks(turns: Sequence[dict[str, Any]]) -> bool:
    """Whether a turn with pictures has a text of white space alone."""
    return any(
        part["type"] == "text" and part["text"].isspace()
        for turn in turns
        if not isinstance(turn["content"], str)
        for part in turn["content"]
    )
