"""Converts a chat request to a sample, and a conversation with its tools to a chat completion."""

import base64
import binascii
import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from vtune.errors import DataError
from vtune.schema.message import IMAGE, Message, Picture
from vtune.schema.pixels import size_of
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Call, Trajectory
from vtune.verifiers.exact import NAME as EXACT

Content = Literal["turn", "answer"]
"""What is returned: the policy's complete last turn, or only its answer if there is exactly one."""

PICTURES = 64
"""Pictures per request at most, ours."""

_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "tools": ([],),
    "functions": ([],),
    "tool_choice": ("none", "auto"),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "audio": (),
}
"""Keys that would change the reply, with the values that do not; null never does. The agent has its own
temperature, limits and so on, which a request cannot change; `vtune.settings` in the reply lists them."""

_ROLES: Mapping[str, Literal["system", "user", "assistant"]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """A chat request."""

    model: str
    messages: tuple[Message, ...]
    images: tuple[bytes, ...]
    """Encoded, in the order of their marks."""
    stream: bool
    stream_usage: bool
    """Whether the stream ends with the token usage."""


def read_request(request: Any) -> Asked:
    """Parse a chat request.

    Raises:
        DataError: If it cannot be used; names the key and the remedy.
    """
    if not isinstance(request, dict):
        raise DataError("the request is not a JSON object", fix='send {"model": "…", "messages": […]}')
    model, turns = request.get("model"), request.get("messages")
    if not isinstance(model, str) or not model:
        raise DataError("`model` is not a text", fix="GET /v1/models names it")
    for key, neutral in _NEUTRAL.items():
        value = request.get(key)
        if value is not None and value not in neutral:
            raise DataError(
                f"`{key}` is {json.dumps(value)[:80]}, which an agent does not support", fix="leave it out"
            )
    if not isinstance(turns, list) or not turns:
        raise DataError("`messages` is not a list with at least one turn", fix="send the user's question")
    images: list[bytes] = []
    messages = tuple(_turn(turn, f"messages[{number}]", images) for number, turn in enumerate(turns))
    if messages[-1].role != "user":
        raise DataError("the last of `messages` is not the user's", fix="end with the question")
    options = request.get("stream_options")
    usage = isinstance(options, dict) and bool(options.get("include_usage"))
    return Asked(model, messages, tuple(images), bool(request.get("stream")), usage)


def _turn(turn: Any, place: str, images: list[bytes]) -> Message:
    role = _ROLES.get(str(turn.get("role"))) if isinstance(turn, dict) else None
    if role is None:
        raise DataError("not a turn", where=place, fix=f"`role` is one of {', '.join(_ROLES)}")
    content = turn.get("content")
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if not isinstance(parts, list):
        raise DataError("`content` is neither a text nor a list of parts", where=place, fix="send either")
    first, text = len(images), ""
    for number, part in enumerate(parts):
        where = f"{place}.content[{number}]"
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text" and isinstance(part.get("text"), str):
            text += _plain(part["text"], where)
        elif kind == "image_url" and role == "user":
            images.append(_picture(part.get("image_url"), where))
            text += IMAGE
        else:
            raise DataError(
                f"a part of kind {str(kind)[:40]!r}",
                where=where,
                fix="send `text`, and in the user's turns `image_url`",
            )
        if len(images) > PICTURES:
            raise DataError(f"more than {PICTURES} pictures", where=where, fix="send fewer")
    return Message(role, text, tuple(range(first, len(images))))


def _plain(text: str, where: str) -> str:
    if IMAGE in text:
        raise DataError(
            f"the text contains {IMAGE}, which stands for a picture here",
            where=where,
            fix="send pictures as `image_url` parts, where they belong in the text",
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(
            f"the text holds half a character, {text[error.start]!r}, which no model reads",
            where=where,
            fix="send both halves of a surrogate pair, or neither",
        ) from None
    return text


def _picture(given: Any, where: str) -> bytes:
    """The bytes of a data URL; nothing is ever fetched."""
    url = given.get("url") if isinstance(given, dict) else given
    head, comma, data = url.partition(",") if isinstance(url, str) else ("", "", "")
    if not (head.startswith("data:image/") and head.endswith(";base64") and comma):
        raise DataError("a picture that is not in the request", where=where, fix="send data:image/…;base64,…")
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise DataError("a picture that is not base64", where=where, fix="encode the file's bytes") from None


def sample_of(asked: Asked, number: int, *, tools: Sequence[str], answer_in: str | None) -> Sample:
    """The sample for a request; its ground truth is unknown and never used."""
    return Sample(
        id=f"request/{number}",
        source="requests",
        prompt=asked.messages,
        images=tuple(Picture(data=data) for data in asked.images),
        ground_truth="unknown",
        verifier=EXACT,
        verifier_parm={} if answer_in is None else {"answer_in": answer_in},
        tools=tuple(tools),
    )


def completion_of(
    trajectory: Trajectory, *, model: str, content: Content, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """A conversation as a chat completion: its last turn, or its answer; all of it under `vtune`.

    Args:
        trajectory: The finished conversation.
        model: The name by which clients call the agent.
        content: What part of it is returned.
        settings: The settings that it was generated with.
    """
    turns = [message.content for message in trajectory.messages if message.role == "assistant"]
    text = turns[-1] if turns else ""
    if content == "answer" and trajectory.answer is not None:
        text = trajectory.answer
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": "stop" if trajectory.stop_reason == "answer" else "length",
        "logprobs": None,
    }
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [choice],
        "usage": _usage(trajectory),
        "vtune": {
            "turns": [
                {"role": message.role, "content": message.content, "images": list(message.images)}
                for message in trajectory.messages
            ],
            "calls": [_call(call) for call in trajectory.calls],
            "trajectory": {
                "stop_reason": trajectory.stop_reason,
                "answer": trajectory.answer,
                "sandbox": trajectory.sandbox,
                "images": [_shown(picture) for picture in trajectory.images],
            },
            "settings": dict(settings),
        },
    }


def _usage(trajectory: Trajectory) -> dict[str, int] | None:
    """Tokens that the policy wrote, and all others of the conversation; None if they are not known here."""
    if not trajectory.token_ids:
        return None
    total, written = len(trajectory.token_ids), sum(trajectory.loss_mask)
    return {"prompt_tokens": total - written, "completion_tokens": written, "total_tokens": total}


def _call(call: Call) -> dict[str, Any]:
    return {
        "tool": call.tool,
        "arguments": json.loads(call.arguments),
        "status": call.status,
        "error": call.error,
        "output": call.output,
        "images": list(call.images),
        "crops": [{"image": crop.image, "bbox_2d": list(crop.bbox)} for crop in call.crops],
        "seconds": call.seconds,
    }


def _shown(picture: Picture) -> dict[str, Any]:
    """Metadata of a picture; the client has the bytes, or those that it was cropped from."""
    width, height = size_of(picture.data or b"")
    seen = None if picture.seen is None else list(picture.seen)
    return {"origin": picture.origin, "width": width, "height": height, "seen": seen}


def events_of(completion: Mapping[str, Any], *, usage: bool) -> bytes:
    """A completion as server-sent events, with the text all at once: only the last turn is returned."""
    (choice,) = completion["choices"]
    head = {key: completion[key] for key in ("id", "created", "model")}
    head["object"] = "chat.completion.chunk"
    first = {"index": 0, "delta": choice["message"], "finish_reason": None}
    last = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
    chunks: list[dict[str, Any]] = [
        head | {"choices": [first]},
        head | {"choices": [last], "vtune": completion["vtune"]},
    ]
    if usage:
        chunks.append(head | {"choices": [], "usage": completion["usage"]})
    texts = [json.dumps(chunk, allow_nan=False) for chunk in chunks]
    return "".join(f"data: {text}\n\n" for text in [*texts, "[DONE]"]).encode()
