"""One model behind an OpenAI-compatible endpoint: what it refuses, when it counts as down, how it fails."""

import asyncio
import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from vtune.errors import ServiceError
from vtune.files.json_text import parse_json
from vtune.judge.completed import Completed, completed
from vtune.judge.key import secret
from vtune.judge.tls import trusted

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAIError

RETRIED = frozenset({408, 409, 429})
"""Statuses below 500 that the `openai` client retries: timeout, conflict, too many requests."""

WRONG_QUESTION = frozenset({400, 413, 415, 422, 451})
"""Statuses about the question; others below 500 are about the endpoint, its key or its model."""

_NOT_FOUND = 404

_NOT_ALLOWED = frozenset({401, 403})
"""Statuses about the key."""

_REFUSAL = re.compile(
    r"\b(?:un)?support|\bdeprecated\b|\bnot (?:allowed|permitted)\b|\bonly the default\b|\bcannot both be\b"
    r"|\bunrecognized\b|\bunknown (?:name|field|parameter|argument)\b|\bunexpected keyword\b",
    re.IGNORECASE,
)
"""What servers say about a parameter that a model does not accept, whatever its value."""

SAID = 500
"""Limit on the characters of an endpoint's error message that are read and shown; ours."""

FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 8.0
"""Between attempts, doubling each time, minus up to a quarter: as the `openai` client waits."""

LENGTH, LATER_LENGTH = "max_tokens", "max_completion_tokens"
"""The limit on a reply's tokens, and its name for newer models."""


class NoVerdict(ServiceError):
    """The model is up, but gives no usable reply to this question: it refuses it, or writes something else.

    Another attempt would give the same.
    """


class Refused(NoVerdict):
    """The endpoint refuses the question with a status: a content filter, or it exceeds the context length."""


class Empty(NoVerdict):
    """The reply is empty; rephrasing the question may help."""


class Cut(Empty):
    """The reply was cut at its token limit before a verdict: the limit is ours."""


class NoReply(ServiceError):
    """The model did not reply: it is down, the request timed out, or it may not be asked.

    Another attempt may get a reply.
    """


class Rejected(ServiceError):
    """The endpoint is up but rejects a request: nothing was done for it."""


class Unknown(Rejected):
    """The endpoint does not know something that the request names."""


class NoAnswer(NoReply):
    """A request that was sent but not answered: the endpoint may have done the work, and charge for it."""


class Unreadable(NoAnswer):
    """The response with status 200 is not a completion: truncated, or a page or an error from a gateway."""


class Completions:
    """Asks one model for chat completions; an async context manager.

    After as many consecutive failures as there may be concurrent requests, the model counts as down: then
    each question gets one attempt, without retries, until one succeeds. So an outage stops a
    run in minutes instead of hours. A status that rejects the question itself (4xx, except those worth
    a retry) is not such a failure: it says nothing about the next question.

    A model may refuse a setting, or require `max_completion_tokens` instead of `max_tokens`. The first
    refusal reveals that, and this question and all later ones are sent without the setting, or under the
    other name.

    Args:
        who: Name of the model in messages, e.g. "the judge".
        base_url: E.g. http://localhost:18901/v1.
        model: The model's name at the endpoint.
        concurrency: Limit on concurrent requests; the caller enforces it.
        retries: Further attempts after a failed connection, a timeout, a status 408, 409, 429 or 5xx, or a
            body with status 200 that is not a completion.
        timeout_s: Per attempt, in seconds.
        api_key_env: Name of the environment variable that holds the key; None if the endpoint needs none.
        fix: What to do if there is no reply.
        no_key: What else to do if the key is not set.
    """

    def __init__(
        self,
        who: str,
        base_url: str,
        model: str,
        *,
        concurrency: int,
        retries: int,
        timeout_s: float,
        api_key_env: str | None,
        fix: str,
        no_key: str = "",
    ) -> None:
        self._who = who
        self._base_url = base_url
        self._model = model
        self._concurrency = concurrency
        self._retries = retries
        self._timeout_s = timeout_s
        self._key = api_key_env
        self._fix = fix
        self._no_key = no_key
        self._failures = 0
        self.has_answered = False
        """Whether a completion has arrived: then it is known which settings the model refuses."""
        self._refused: set[str] = set()
        self._client: AsyncOpenAI | None = None

    @property
    def refused(self) -> frozenset[str]:
        """Settings that the model has refused."""
        return frozenset(self._refused)

    @property
    def where(self) -> str:
        """Endpoint and model, for messages."""
        return f"{self._base_url}, model {self._model}"

    async def __aenter__(self) -> Self:
        """Open the endpoint, without connecting.

        Raises:
            RecipeError: If the environment variable of the key is not set, or not a valid header value.
        """
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        key = secret(self._key, f"{self._who}'s key", no_key=self._no_key)
        self._client = AsyncOpenAI(
            base_url=self._base_url,
            api_key="none" if key is None else key,
            timeout=self._timeout_s,
            max_retries=self._retries,  # the client backs off exponentially, with jitter
            http_client=DefaultAsyncHttpxClient(verify=trusted()),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._client is not None:
            await self._client.close()

    async def create(
        self,
        messages: Sequence[Mapping[str, Any]],
        settings: Mapping[str, Any],
        *,
        lost: Callable[[], object],
    ) -> Completed:
        """The completion of a conversation.

        Args:
            messages: All turns, in OpenAI's format.
            settings: By OpenAI's names; those that the model refuses are left out.
            lost: Called for each body that is not a completion, before the next attempt: the endpoint may
                charge for it. An exception from it ends the attempts.

        Raises:
            Refused: If the endpoint refuses the question.
            NoAnswer: If the question was sent but got no response; `Unreadable` if the response is not a
                completion.
            NoReply: If there was no reply.
        """
        left = 0 if self._failures >= self._concurrency else self._retries
        wait_s = FIRST_WAIT_S
        while True:
            body, taken = await self._sent(messages, settings, left)
            left -= taken + 1
            try:
                reply = self.read(parse_json(body))
                break
            except ValueError as error:
                if left < 0:
                    self._failures += 1
                    why = f"{self._who} gave no reply: status 200, but not a completion: {error}"
                    raise Unreadable(why, where=self.where, fix=self._fix) from None
            lost()
            await asyncio.sleep(wait_s * random.uniform(0.75, 1.0))
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)
        self._failures = 0
        self.has_answered = True
        return reply

    async def _sent(
        self, messages: Sequence[Mapping[str, Any]], settings: Mapping[str, Any], retries: int
    ) -> tuple[bytes, int]:
        """(the response body with status 200, number of retries used).

        Raises:
            Refused, NoAnswer, NoReply: As in `create`.
        """
        from openai import OpenAIError

        while True:
            sent = frozenset(self._refused)
            try:
                return await self._send(messages, settings, sent, retries)
            except OpenAIError as error:
                # Terminates: each refusal adds a setting, and there are only a few.
                if (name := _parameter(error, settings)) is not None and name not in sent:
                    self._refused.add(name)
                    continue
                refused = _refused(error)
                if not refused:
                    self._failures += 1
                raise _kind_of(error)(
                    f"{self._who} gave no reply: {type(error).__name__}: {_said(error)}",
                    where=self.where,
                    fix=self._remedy(error),
                ) from None

    async def _send(
        self,
        messages: Sequence[Mapping[str, Any]],
        settings: Mapping[str, Any],
        refused: frozenset[str],
        retries: int,
    ) -> tuple[bytes, int]:
        """The raw response body: the client would accept anything as a completion, even an HTML page."""
        client = self.opened if retries == self._retries else self.opened.with_options(max_retries=retries)
        # The client's types are too strict for what is passed here.
        create: Any = client.chat.completions.with_raw_response.create
        raw = await create(**self._body(messages, settings, refused))
        return raw.http_response.content, raw.retries_taken

    def _remedy(self, error: "OpenAIError") -> str:
        """What to do about a failed request."""
        if _status(error) not in _NOT_ALLOWED:
            return self._fix
        if self._key is None:
            return "name the environment variable that holds its key as api_key_env"
        return f"check the key in {self._key}, and that it may use this model"

    def body(self, messages: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> dict[str, Any]:
        """The request for a conversation, without the settings that the model refuses."""
        return self._body(messages, settings, self.refused)

    def _body(
        self,
        messages: Sequence[Mapping[str, Any]],
        settings: Mapping[str, Any],
        refused: frozenset[str],
    ) -> dict[str, Any]:
        taken = {name: value for name, value in settings.items() if name not in refused}
        if LENGTH in refused:
            taken[LATER_LENGTH] = settings[LENGTH]
        return {"model": self._model, "messages": list(messages), **taken}

    @property
    def opened(self) -> "AsyncOpenAI":
        """The client, which the context manager has opened."""
        if self._client is None:
            raise RuntimeError(f"{self._who}'s client is used outside its `async with`")
        return self._client

    def read(self, body: Any) -> Completed:
        """Parse the body of a completion.

        Raises:
            ValueError: If it is not a completion.
        """
        return completed(body, self._model)

    @contextmanager
    def failing(self, what: str, fix: str) -> Iterator[None]:
        """Turn errors from the client within this context into errors of ours.

        Raises:
            Rejected: If the endpoint refuses; `Unknown` if it does not know what is asked for.
            ServiceError: If there is no answer.
        """
        from openai import OpenAIError

        try:
            yield
        except OpenAIError as error:
            refusal = Unknown if _status(error) == _NOT_FOUND else Rejected
            kind = refusal if _refused(error) else ServiceError
            raise kind(f"{what}: {type(error).__name__}: {_said(error)}", where=self.where, fix=fix) from None


def _status(error: "OpenAIError") -> int | None:
    from openai import APIStatusError

    return error.status_code if isinstance(error, APIStatusError) else None


def _said(error: "OpenAIError") -> str:
    """The client's message for a failure, plus the endpoint's: the client parses only OpenAI's format.

    Others send a list (Gemini), a `detail` (FastAPI), a `message` that is not text (Mistral), or a page.
    """
    message, body = str(error), getattr(error, "body", None)
    if not body or " - " in message:
        return message
    text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
    return f"{message} - {' '.join(text[:SAID].split())}".encode("utf-8", "replace").decode()


def _parameter(error: "OpenAIError", settings: Mapping[str, Any]) -> str | None:
    """The setting that a model does not accept, according to the refusal; None if it is about something else.

    Taken from `param` of OpenAI's errors, else from the name in the message, which is all that other servers
    give. If two settings exclude each other, the later one in `settings` is dropped.
    """
    said = _said(error)
    if _status(error) not in WRONG_QUESTION or not _REFUSAL.search(said):
        return None
    named: str | None = getattr(error, "param", None)
    for name in reversed(list(settings)):
        if named == name or (named is None and re.search(rf"\b{name}\b", said)):
            return name
    return None


def _kind_of(error: "OpenAIError") -> type[ServiceError]:
    """The kind of failure: refused, sent without an answer, or never sent."""
    from openai import APIConnectionError

    if _refused(error) and _status(error) in WRONG_QUESTION:
        return Refused
    # By name: which HTTP package raises them depends on the version of openai.
    connected = type(error.__cause__).__name__ not in ("ConnectError", "ConnectTimeout")
    return NoAnswer if connected and isinstance(error, APIConnectionError) else NoReply


def _refused(error: "OpenAIError") -> bool:
    """Whether the model is up and will not answer this question, however often it is asked."""
    status = _status(error)
    return status is not None and 400 <= status < 500 and status not in RETRIED
