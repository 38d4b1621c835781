"""The one client for every model that judges: an OpenAI-compatible endpoint, asked once for each question."""

import asyncio
import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self, TypeVar

from pydantic import Field

from vtune.config import Strict
from vtune.errors import DataError, RecipeError, ServiceError
from vtune.files.json_text import parse_json
from vtune.files.reading import MAX_DOCUMENT, read_text
from vtune.judge.pictures import data_url, read_bytes
from vtune.judge.prompts import Prompt, insisting
from vtune.schema.message import Picture

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAIError
    from openai.types.chat import ChatCompletion, ChatCompletionContentPartParam

T = TypeVar("T")

RETRIED = frozenset({408, 409, 429})
"""Statuses below 500 that the `openai` client tries again: time-out, conflict, too many requests."""

WRONG_QUESTION = frozenset({400, 413, 415, 422, 451})
"""Statuses that speak of the question; others below 500 speak of the endpoint, its key or its model."""

_REFUSAL = re.compile(r"\b(?:un)?support|\bdeprecated\b|\bnot allowed\b|\bonly the default\b", re.IGNORECASE)
"""What a server says of a parameter that a model does not take, whatever its value."""


class NoVerdict(ServiceError):
    """The judge is up, and says nothing usable about this question: it refuses it, or writes something else.

    Another attempt would say the same.
    """


class JudgeEndpoint(Strict):
    """Where the judge answers, and how it is asked."""

    base_url: str
    """E.g. http://localhost:18901/v1."""
    model: str
    temperature: float = Field(ge=0)
    """Not sent to a model that refuses it (GPT-5 and other models that reason)."""
    max_tokens: int = Field(gt=0)
    """Of a reply, thoughts included; sent as `max_completion_tokens` to a model that wants that name."""
    concurrency: int = Field(gt=0)
    """Requests under way at the same time."""
    retries: int = Field(ge=0)
    """Further attempts after a failed connection, a time-out or a status 408, 409, 429 or 5xx."""
    timeout_s: float = Field(gt=0)
    """For one attempt, in seconds."""
    api_key_env: str | None
    """Name of the environment variable that holds the key; null where the endpoint wants none."""


class JudgeClient:
    """Asks a judge; an async context manager.

    The same question (model, settings, text, pictures) is sent once: replies are kept in memory (the latest
    `most`) and, with a cache file, on disk; who asks while it is under way waits for the same reply. Failures
    are not kept.

    After as many failures in a row as there may be requests under way the judge counts as down: then a
    question gets one attempt, without waiting between retries, until one succeeds. So an outage stops a
    run in minutes instead of hours. A status that refuses the question itself (4xx, but none that is worth
    a retry) is not such a failure: it says nothing about the next question.

    A model may refuse `temperature`, or want `max_completion_tokens` for `max_tokens`. The first refusal says
    so, and that question and all later ones are sent without the one, or by the other name.
    """

    def __init__(
        self, endpoint: JudgeEndpoint, *, cache: Path | None = None, most: int | None = None
    ) -> None:
        """Prepare, without connecting.

        Args:
            endpoint: The endpoint.
            cache: A JSONL file of replies, made if missing, written by one process only; None keeps them in
                memory only.
            most: Replies in memory, the oldest goes first; None keeps all, which a service that runs for
                months cannot.
        """
        self._endpoint = endpoint
        self._cache = cache
        self._most = most
        self._file: IO[str] | None = None
        self._replies: dict[str, str] = {}
        self._under_way: dict[str, asyncio.Task[str]] = {}
        self._room = asyncio.Semaphore(endpoint.concurrency)
        self._failures = 0
        self._client: AsyncOpenAI | None = None
        self._refused: set[str] = set()

    @property
    def refused(self) -> frozenset[str]:
        """Parameters that the model was found to refuse: `temperature`, `max_tokens`."""
        return frozenset(self._refused)

    async def __aenter__(self) -> Self:
        """Open the endpoint and the cache.

        Raises:
            RecipeError: If the environment variable of the key is not set.
            DataError: If the cache file cannot be read.
        """
        from openai import AsyncOpenAI

        name = self._endpoint.api_key_env
        if name is not None and name not in os.environ:
            raise RecipeError(
                f"the judge's key is not set: no environment variable {name}", fix=f"export {name}=…"
            )
        self._client = AsyncOpenAI(
            base_url=self._endpoint.base_url,
            api_key=os.environ[name] if name is not None else "none",
            timeout=self._endpoint.timeout_s,
            max_retries=self._endpoint.retries,  # the client backs off exponentially, with jitter
        )
        if self._cache is not None:
            self._replies |= _read_cache(self._cache)
            self._cache.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._cache.open("a", encoding="utf-8")
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._under_way.values():
            task.cancel()
        await asyncio.gather(*self._under_way.values(), return_exceptions=True)
        if self._client is not None:
            await self._client.close()
        if self._file is not None:
            self._file.close()

    async def ask(self, prompt: Prompt, pictures: Sequence[Picture]) -> str:
        """The judge's reply to a prompt with pictures.

        Raises:
            NoVerdict: If the judge refuses the question, or says nothing.
            ServiceError: If no reply came.
            DataError: If a picture cannot be read.
        """
        key = self._key(prompt, pictures)
        if key in self._replies:
            return self._replies[key]
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.create_task(self._fetch(key, prompt, pictures))
            task.add_done_callback(lambda _: self._under_way.pop(key, None))
        return await asyncio.shield(task)  # who gives up waiting takes no reply from the others

    async def ask_for(
        self, prompt: Prompt, pictures: Sequence[Picture], read: Callable[[str], T | None], wanted: str
    ) -> T:
        """What `read` finds in the judge's reply. A reply in which it finds nothing is asked for once more.

        Args:
            prompt: The question.
            pictures: They follow it.
            read: Returns None for a reply that cannot be read.
            wanted: What a reply should be, e.g. "TRUE or FALSE".

        Raises:
            NoVerdict: As `ask`, or if the second reply cannot be read either.
            ServiceError: As `ask`.
            DataError: As `ask`.
        """
        reply = ""
        for asked in (prompt, insisting(prompt, wanted)):
            reply = await self.ask(asked, pictures)
            found = read(reply)
            if found is not None:
                return found
        raise NoVerdict(f"the judge wrote {reply[:80]!r} instead of {wanted}, asked twice")

    async def _fetch(self, key: str, prompt: Prompt, pictures: Sequence[Picture]) -> str:
        async with self._room:
            reply = await self._complete(prompt, pictures)
        self._replies[key] = reply
        if self._most is not None and len(self._replies) > self._most:
            del self._replies[next(iter(self._replies))]
        if self._file is not None:
            self._file.write(json.dumps({"key": key, "reply": reply}) + "\n")
            self._file.flush()
        return reply

    async def _complete(self, prompt: Prompt, pictures: Sequence[Picture]) -> str:
        from openai import OpenAIError

        content: list[ChatCompletionContentPartParam] = [{"type": "text", "text": prompt.text}]
        content += [{"type": "image_url", "image_url": {"url": data_url(picture)}} for picture in pictures]
        while True:
            sent = frozenset(self._refused)
            try:
                completion = await self._send(prompt.system, content, sent)
                break
            except OpenAIError as error:
                # Each refusal adds a parameter, and there are two.
                if (name := _parameter(error)) is not None and name not in sent:
                    self._refused.add(name)
                    continue
                refused = _refused(error)
                if not refused:
                    self._failures += 1
                raise (NoVerdict if refused and _status(error) in WRONG_QUESTION else ServiceError)(
                    f"the judge gave no reply: {type(error).__name__}: {error}",
                    where=f"{self._endpoint.base_url}, model {self._endpoint.model}",
                    fix="see that the endpoint is up, and that `judge` in the recipe names it",
                ) from None
        self._failures = 0
        return self._text(completion)

    async def _send(
        self, system: str, content: "list[ChatCompletionContentPartParam]", refused: frozenset[str]
    ) -> "ChatCompletion":
        if self._client is None:
            raise RuntimeError("the judge client is used outside its `async with`")
        down = self._failures >= self._endpoint.concurrency
        client = self._client.with_options(max_retries=0) if down else self._client
        length = "max_completion_tokens" if "max_tokens" in refused else "max_tokens"
        settings: dict[str, Any] = {length: self._endpoint.max_tokens}
        if "temperature" not in refused:
            settings["temperature"] = self._endpoint.temperature
        completion: ChatCompletion = await client.chat.completions.create(
            model=self._endpoint.model,
            messages=[{"role": "system", "content": system}, {"role": "user", "content": content}],
            **settings,
        )
        return completion

    def _text(self, completion: "ChatCompletion") -> str:
        choice = completion.choices[0] if completion.choices else None
        if choice is not None and choice.message.content:
            return choice.message.content
        cut = choice is not None and choice.finish_reason == "length"
        raise NoVerdict(
            "the judge's reply is empty"
            + (f": its {self._endpoint.max_tokens} max_tokens went into thoughts" if cut else ""),
            where=f"{self._endpoint.base_url}, model {self._endpoint.model}",
            fix="raise `max_tokens` of the judge: a model that reasons needs some thousand" if cut else "",
        )

    def _key(self, prompt: Prompt, pictures: Sequence[Picture]) -> str:
        settings = (self._endpoint.model, self._endpoint.temperature, self._endpoint.max_tokens)
        digest = hashlib.sha256(json.dumps([*settings, prompt.system, prompt.text]).encode())
        for picture in pictures:
            digest.update(hashlib.sha256(read_bytes(picture)).digest())
        return digest.hexdigest()


def _status(error: "OpenAIError") -> int | None:
    from openai import APIStatusError

    return error.status_code if isinstance(error, APIStatusError) else None


def _parameter(error: "OpenAIError") -> str | None:
    """The parameter that a model does not take, as the refusal says; None where it is about something else.

    By `param` of OpenAI's errors, else by the name in the message: other servers have only that.
    """
    if _status(error) not in WRONG_QUESTION or not _REFUSAL.search(str(error)):
        return None
    named = getattr(error, "param", None)
    for name in ("max_tokens", "temperature"):
        if named == name or (named is None and re.search(rf"\b{name}\b", str(error))):
            return name
    return None


def _refused(error: "OpenAIError") -> bool:
    """Whether the judge is up and will not answer this question, however often it is asked."""
    status = _status(error)
    return status is not None and 400 <= status < 500 and status not in RETRIED


def _read_cache(path: Path) -> dict[str, str]:
    """The replies in a cache file. A last line that a kill cut short is left out, and cut off."""
    if not path.exists():
        return {}
    text = read_text(path, limit=MAX_DOCUMENT)
    whole = text[: text.rfind("\n") + 1]
    if len(whole) < len(text):
        with path.open("r+b") as file:
            file.truncate(len(whole.encode()))
    replies: dict[str, str] = {}
    for number, line in enumerate(whole.split("\n")[:-1], start=1):
        try:
            row = parse_json(line)
            replies[row["key"]] = str(row["reply"])
        except (ValueError, KeyError, TypeError):
            raise DataError("not a cached reply", where=f"{path}:{number}", fix="delete the file") from None
    return replies
