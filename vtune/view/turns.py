"""A conversation in parts: texts, code, answers, pictures, and the calls of each turn."""

import re
from collections.abc import Sequence
from typing import Any, Literal

from vtune.schema.message import IMAGE, Message
from vtune.schema.trajectory import Trajectory

By = Literal["prompt", "policy", "tools"]

_PARTS = re.compile(r"(?s)<(code|tool_call|answer)>.*?(?:</\1>|\Z)")


def turns_of(trajectory: Trajectory) -> list[dict[str, Any]]:
    """Each message with its author (`by`), its `parts` in order, and the numbers of the `calls` in it.

    The texts of the parts, concatenated, are the message; a picture replaces its mark.
    """
    wrote = _written(trajectory)
    calls = calls_by_turn(trajectory, guess=True)
    first = wrote[0] if wrote else len(trajectory.messages)
    found = []
    for number, message in enumerate(trajectory.messages):
        by: By = "policy" if number in wrote else "prompt" if number < first else "tools"
        turn = {"role": message.role, "by": by, "parts": parts_of(message, by), "calls": calls[number]}
        found.append(turn)
    return found


def parts_of(message: Message, by: By) -> list[dict[str, Any]]:
    """Text, code, calls, answers and pictures of a message, in order."""
    if by == "policy":
        return _written_parts(message.content)
    found: list[dict[str, Any]] = []
    pictures = iter(message.images)
    for number, text in enumerate(message.content.split(IMAGE)):
        if number:
            found.append({"kind": "picture", "picture": next(pictures, None)})
        if text:
            found.append({"kind": "text", "text": text})
    return found


def _written_parts(content: str) -> list[dict[str, Any]]:
    found, at = [], 0
    for match in _PARTS.finditer(content):
        if content[at : match.start()]:
            found.append({"kind": "text", "text": content[at : match.start()]})
        found.append({"kind": match[1], "text": match[0]})
        at = match.end()
    if content[at:]:
        found.append({"kind": "text", "text": content[at:]})
    return found


def _written(trajectory: Trajectory) -> list[int]:
    """Numbers of the messages that the policy wrote: the last ones, one for each stretch of its tokens."""
    said = [number for number, one in enumerate(trajectory.messages) if one.role == "assistant"]
    runs = len(_runs(trajectory.loss_mask))
    return said[-runs:] if 0 < runs <= len(said) else said


def _runs(mask: Sequence[bool]) -> list[tuple[int, int]]:
    """First and last+1 token of each stretch that the policy sampled."""
    ends = [at for at in range(len(mask) + 1) if (at > 0 and mask[at - 1]) != (at < len(mask) and mask[at])]
    return list(zip(ends[::2], ends[1::2], strict=True))


def calls_by_turn(trajectory: Trajectory, *, guess: bool) -> list[list[int]]:
    """For each message, the calls that it made: by tokens, else by pictures, else one per turn.

    Args:
        trajectory: The recorded trajectory.
        guess: Whether to assume one per turn even if the number of calls is neither that of the turns nor
            one less; if not, no message then has any calls.
    """
    found: list[list[int]] = [[] for _ in trajectory.messages]
    wrote, calls = _written(trajectory), len(trajectory.calls)
    runs = _runs(trajectory.loss_mask)
    clear = len(runs) == len(wrote) if runs else calls in (len(wrote) - 1, len(wrote))
    if not wrote or not (guess or clear):
        return found
    next_free = 0
    for k, call in enumerate(trajectory.calls):
        turn = None
        if call.span[0] < call.span[1] and len(runs) == len(wrote):
            turn = next((n for n, (start, end) in enumerate(runs) if start <= call.span[0] < end), None)
        if turn is None:
            turn = _turn_by_pictures(trajectory, wrote, k)
        if turn is None:
            turn = min(next_free, len(wrote) - 1)
        next_free = turn + 1
        found[wrote[turn]].append(k)
    return found


def _turn_by_pictures(trajectory: Trajectory, wrote: Sequence[int], k: int) -> int | None:
    """The turn before the message that has a picture of call `k`."""
    mine = {number for number, one in enumerate(trajectory.images) if one.origin == f"call:{k}"}
    for number, message in enumerate(trajectory.messages):
        if message.role != "assistant" and mine & set(message.images):
            before = [turn for turn, place in enumerate(wrote) if place < number]
            return before[-1] if before else None
    return None
