"""What samples and trajectories share: turns of a conversation and the pictures in them."""

from dataclasses import dataclass
from typing import Literal

Role = Literal["system", "user", "assistant"]

IMAGE = "<image>"
"""Marks the place of a picture in the text of a turn."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn. Every `<image>` in `content` corresponds to an entry of `images`.

    The exception is what a policy wrote (role `assistant`, no `images`): there the mark is plain text.
    """

    role: Role
    content: str
    images: tuple[int, ...] = ()
    """Indices into the record's pictures, in the order of the `<image>` marks."""


@dataclass(frozen=True, slots=True)
class Picture:
    """An encoded image: its bytes, or a path to them, or both. It stays encoded until a forward pass."""

    data: bytes | None = None
    path: str | None = None
    origin: str = "input"
    """`input`, or `call:<k>` for a picture returned by tool call k (trajectories only)."""
    seen: tuple[int, int] | None = None
    """Width and height at which the policy saw it, after its processor; None if not known."""
