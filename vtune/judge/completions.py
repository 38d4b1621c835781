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
from vtune.judge.key import read_key
from vtune.judge.tls import trusted

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAIError

RETRIED = frozenset({408, 409, 429})
"""Statuses below 500 that the `openai` client retries: timeout, conflict, too many requests."""

WRONG_QUESTION = frozenset({400, 413, 415, 422, 451})
"""Statuses about the question; others below 500 are about the endpoint, its key or its model."""

_NOT_FOUND = 404

_NOT_ALLOWED = frozenset({401, 403})
"""Statuses that speak of the key."""

_REFUSAL = re.compile(
    r"\b(?:un)?support|\bdeprecated\b|\bnot (?:allowed|permitted)\b|\bonly the default\b|\bcannot both be\b"
    r"|\bunrecognized\b|\bunknown (?:name|field|parameter|argument)\b|\bunexpected keyword\b",
    re.IGNORECASE,
)
"""What a server says of a parameter that a model does not take, whatever its value."""

SAID = 500
"""Characters of what an endpoint says of an error that are read and shown, ours."""

FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 8.0
"""Between attempts, doubled each time, and up to a quarter less: as the `openai` client waits."""

LENGTH, LATER_LENGTH = "max_tokens", "max_completion_tokens"
"""The limit of a reply, and what newer models call it."""


class NoVerdict(ServiceError):
    """The model is up, but gives no usable reply to this question: it refuses it, or writes something else.

    Another attempt would say the same.
    """


class Refused(NoVerdict):
    """The endpoint refuses the question by status: a content filter, or it exceeds the context length."""


class Empty(NoVerdict):
    """The model says nothing; it may if asked in other words."""


class Cut(Empty):
    """The model was cut at its limit on tokens before it could give a verdict: the limit is ours."""


class NoReply(ServiceError):
    """The model did not reply: it is down, the wait timed out, or it may not be asked.

    Another attempt may get a reply.
    """


class Rejected(ServiceError):
    """The endpoint is up and refuses a request: nothing was done for it."""


class Unknown(Rejected):
    """The endpoint does not know what a request names."""


class NoAnswer(NoReply):
    """A request that was sent and not answered: the endpoint may have done the work, and charge for it."""


class Unreadable(NoAnswer):
    """What came back, with status 200, is not a completion: cut short, or a page or an error of a gateway."""


class Completions:
    """Asks one model for chat completions; an async context manager.

    After as many failures in a row as there may be requests under way the model counts as down: then a
    question gets one attempt, without waiting between retries, until one succeeds. So an outage stops a
    run in minutes instead of hours. A status that refuses the question itself (4xx, but none that is worth
    a retry) is not such a failure: it says nothing about the next question.

    A model may refuse a setting, or want `max_completion_tokens` for `max_tokens`. The first refusal says
    so, and that question and all later ones are sent without the one, or by the other name.

    Args:
        who: As messages call it, e.g. "the judge".
        base_url: E.g. http://localhost:18901/v1.
        model: Its name there.
        concurrency: Requests that may be under way at the same time; the caller sees to it.
        retries: Further attempts after a failed connection, a time-out, a status 408, 409, 429 or 5xx, or a
            body of status 200 that is not a completion.
        timeout_s: For one attempt, in seconds.
        api_key_env: Name of the environment variable that holds the key; None where the endpoint wants none.
        fix: What to do when no reply comes.
        no_key: What else to do where the key is not set.
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
        """Whether a completion has come: what the model refuses is then known."""
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
            RecipeError: If the environment variable of the key is not set, or holds what no header can.
        """
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        key = read_key(self._key, self._who, no_key=self._no_key)
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
            messages: All turns, as OpenAI has them.
            settings: By their names at OpenAI; those that the model refuses are left out.
            lost: Called at each body that is not a completion, before the next attempt: the endpoint may
                charge for it. What it raises ends the attempts.

        Raises:
            Refused: If the endpoint refuses the question.
            NoAnswer: If the question was sent, and nothing came back; `Unreadable` if no completion did.
            NoReply: If no reply came.
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
        """(the body that comes back with status 200, how many of the retries it took).

        Raises:
            Refused, NoAnswer, NoReply: As `create`.
        """
        from openai import OpenAIError

        while True:
            sent = frozenset(self._refused)
            try:
                return await self._send(messages, settings, sent, retries)
            except OpenAIError as error:
                # Each refusal adds a setting, and there are few.
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
        """The body that comes back, as it is: the client takes any for a completion, a page of HTML too."""
        client = self.opened if retries == self._retries else self.opened.with_options(max_retries=retries)
        # Its types do not know what it is given here.
        create: Any = client.chat.completions.with_raw_response.create
        raw = await create(**self._body(messages, settings, refused))
        return raw.http_response.content, raw.retries_taken

    def _remedy(self, error: "OpenAIError") -> str:
        """What to do about a request that failed."""
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
        """What the body of a completion says.

        Raises:
            ValueError: If it is not a completion.
        """
        return completed(body, self._model)

    @contextmanager
    def failing(self, what: str, fix: str) -> Iterator[None]:
        """Turn what the client raises within it into an error of ours.

        Raises:
            Rejected: If the endpoint refuses; `Unknown` if it does not know what is asked for.
            ServiceError: If it gives no answer.
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
    """What the client says of a failure, and what the endpoint does: the client reads OpenAI's form alone.

    Others are a list (Gemini), a `detail` (FastAPI), a `message` that is no text (Mistral), or a page.
    """
    message, body = str(error), getattr(error, "body", None)
    if not body or " - " in message:
        return message
    text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
    return f"{message} - {' '.join(text[:SAID].split())}".encode("utf-8", "replace").decode()


def _parameter(error: "OpenAIError", settings: Mapping[str, Any]) -> str | None:
    """The setting that a model does not take, as the refusal says; None where it is about something else.

    By `param` of OpenAI's errors, else by the name in the message: other servers have only that. Of two of
    which a model takes one, the later in `settings` goes.
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
    """What a failed request is: refused, sent without an answer, or never taken."""
    from openai import APIConnectionError

    if _refused(error) and _status(error) in WRONG_QUESTION:
        return Refused
    # By name: which package of HTTP raises them depends on the version of openai.
    connected = type(error.__cause__).__name__ not in ("ConnectError", "ConnectTimeout")
    return NoAnswer if connected and isinstance(error, APIConnectionError) else NoReply


def _refused(error: "OpenAIError") -> bool:
    """Whether the model is up and will not answer this question, however often it is asked."""
    status = _status(error)
    return status is not None and 400 <= status < 500 and status not in RETRIED
