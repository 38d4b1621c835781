"""What a trajectory earned, or why it is unscored."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """The weighted total and its parts; a part is None when it could not be scored.

    None is not zero: zero says that the trajectory was worthless, None says nothing about it.
    An unscored part that counts (its weight is not zero) leaves the total unscored.
    """

    total: float | None
    accuracy: float | None
    format: float | None
    tool: float | None
    why: str
    consistency: float | None = None
    """None also where the recipe does not ask for it, and in files that were written before it could."""
    parts: Mapping[str, float] = field(default_factory=dict)
    """Facts behind the accuracy, by name (`Verdict.parts`); none in files that were written before they were
    kept."""
    own: Mapping[str, float | None] = field(default_factory=dict)
    """Parts of the user's own, by name; None where one could not be scored."""
