"""What a verifier, or a judge of evidence, says."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite

from vtune.errors import OutOfRange

SCALE = "scale it: divide by the most that it can be, and leave out what is not a number"
"""The next step for a score outside its range."""


def number(score: object) -> float:
    """A score as a plain number: files cannot store those of numpy and torch. True is 1.

    Raises:
        TypeError: If it is something else, such as None or a text; says what to write.
    """
    plain = getattr(score, "item", None) if getattr(score, "shape", None) == () else None
    found = plain() if callable(plain) else score
    if not isinstance(found, int | float):
        raise TypeError(f"a score is {score!r:.60}: give a number")
    return float(found)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A score and its reason, short enough to read in a report.

    A verifier's score is in [0, 1]; a judge of tool calls may go down to -1 (red flags).
    """

    score: float
    why: str
    parts: Mapping[str, float] = field(default_factory=dict)
    """Facts behind the score, by name, e.g. `iou@50`: for metrics, never for the reward."""

    def __post_init__(self) -> None:
        score = number(self.score)
        if not -1.0 <= score <= 1.0:  # also catches NaN
            raise OutOfRange(
                f"a score is {score:.4g}, and scores lie in [0, 1], of looks and rewards in [-1, 1]",
                SCALE,
            )
        if not isinstance(self.why, str):
            raise TypeError(f"the reason of a verdict is {self.why!r:.60}: write a text")
        # No file can store half a surrogate pair, which a reason may quote.
        object.__setattr__(self, "why", self.why.encode("utf-8", "replace").decode("utf-8"))
        # Neither JSON nor Parquet can store numpy or torch numbers.
        parts = {name: float(value) for name, value in self.parts.items()}
        for name, value in parts.items():
            if not isinstance(name, str):
                raise TypeError(f"the name of a part of a verdict is {name!r:.60}: write a text")
            if not isfinite(value):
                raise ValueError(f"part {name!r} of a verdict is {value}: leave out what is not known")
        object.__setattr__(self, "score", score)
        object.__setattr__(self, "parts", parts)
