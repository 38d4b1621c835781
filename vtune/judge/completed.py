"""Parses the body of a chat completion, in all the forms in which endpoints write it."""

from dataclasses import dataclass
from typing import Any

LENGTH = "length"
"""The `finish_reason` of a reply that was cut at its token limit: it may contain nothing but thoughts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """What a model returned."""

    text: str
    """Empty if there was none."""
    thoughts: bool
    """Whether the endpoint returned thoughts separately, as servers with a reasoning parser do."""
    finish: str
    """Its `finish_reason`: stop, length, content_filter; empty if there was no choice at all."""
    stop: str | None
    """The stop text that ended it, if the server reports it (vLLM's `stop_reason`)."""
    input: int | None
    """Number of tokens, including cached ones; None if the endpoint does not report it."""
    cached: int
    output: int | None
    model: str
    """The endpoint's name for the model that answered."""
    fingerprint: str | None
    """`system_fingerprint`."""


def completed(body: Any, model: str) -> Completed:
    """The contents of a completion's body; a choice without a finish reason counts as complete.

    Raises:
        ValueError: If it is not a completion. Gateways send errors, and HTML pages, with status 200.
    """
    found = _object(body, "the body")
    choices = found.get("choices")
    if not choices and found.get("error"):
        raise ValueError(f"it says {found['error']!r:.300}")
    if "choices" not in found or not isinstance(choices, list | None):
        raise ValueError("it has no list of `choices`")
    choice = _object(choices[0], "a choice") if choices else None
    usage = _object(found.get("usage") or {}, "`usage`")
    reason = None if choice is None else choice.get("stop_reason")
    fingerprint = found.get("system_fingerprint")
    return Completed(
        text="" if choice is None else _text(choice),
        thoughts=choice is not None and _has_thoughts(choice),
        finish="" if choice is None else str(choice.get("finish_reason") or "stop"),
        stop=reason if isinstance(reason, str) else None,
        input=_count(usage.get("prompt_tokens")),
        cached=_count(_object(usage.get("prompt_tokens_details") or {}, "`usage`").get("cached_tokens")) or 0,
        output=_count(usage.get("completion_tokens")),
        model=str(found.get("model") or model),
        fingerprint=fingerprint if isinstance(fingerprint, str) else None,
    )


def _text(choice: dict[str, Any]) -> str:
    """The text of a choice; if the message comes in parts, as from some reasoning models, its text parts."""
    message = choice.get("message")
    if message is None and choice.get("finish_reason") == "content_filter":
        return ""
    said = _object(message, "`message`")
    content = said.get("content")
    if isinstance(content, list):
        parts = [_object(part, "a part of `content`") for part in content]
        content = "".join(str(part.get("text") or "") for part in parts if part.get("type") == "text")
    text = content or said.get("refusal") or ""
    if not isinstance(text, str):
        raise ValueError("`content` is not a text")
    # JSON may contain half a surrogate pair, which no file can store.
    return text.encode("utf-8", "replace").decode()


def _has_thoughts(choice: dict[str, Any]) -> bool:
    said = choice.get("message")
    return isinstance(said, dict) and any(said.get(key) for key in ("reasoning_content", "reasoning"))


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is not a JSON object")
    return value


def _count(value: Any) -> int | None:
    return value if type(value) is int else None
