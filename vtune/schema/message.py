"""What samples and trajectories share: turns of a conversation and the pictures in them."""

from dataclasses import dataclass
from typing import Literal

Role = Literal["system", "user", "assistant"]

IMAGE = "<image>"
"""Where a picture stands in the text of a turn."""


@dataclass(frozen=True, slots=True)
class Message:
    """One turn. Every `<image>` in `content` is one entry of `images`.

    Except in what a policy wrote (role `assistant`, no `images`): there the mark is mere text.
    """

    role: Role
    content: str
    images: tuple[int, ...] = ()
    """Indices into the pictures of the record, in the order of the `<image>` marks."""


@dataclass(frozen=True, slots=True)
class Picture:
    """An encoded image: its bytes, or a path to them, or both. It stays encoded until a forward needs it."""

    data: bytes | None = None
    path: str | None = None
    origin: str = "input"
    """`input`, or `call:<k>` for a picture that tool call number k returned (trajectories only)."""
    seen: tuple[int, int] | None = None
    """Width and height at which the policy saw it, after its processor; None where that is not known."""
