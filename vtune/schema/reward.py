"""What a trajectory earned, or why it is unscored."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """The weighted total and its parts; a part is None if it could not be scored.

    None is not zero: zero means that the trajectory was worthless, None says nothing about it.
    If a part with a non-zero weight is unscored, so is the total.
    """

    total: float | None
    accuracy: float | None
    format: float | None
    tool: float | None
    why: str
    consistency: float | None = None
    """None also if the recipe does not use it, and in files written before it existed."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Facts behind the accuracy, by name (`Verdict.parts`); empty in files written before they were
    stored."""
    own: Mapping[str, float | None] = field(default_factory=dict)
    """The user's own parts, by name; None if one could not be scored."""
