"""The sections `advantage` and `credit` of a recipe."""

from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from vtune.advantage.group import Baseline
from vtune.advantage.tool_types import tool_types
from vtune.errors import nearest
from vtune.registry import or_yours
from vtune.sections import Strict
from vtune.tools import TOOLS


class Overlong(Strict):
    """A penalty that grows as the length limit is approached (DAPO, "Overlong Reward Shaping")."""

    limit: int = Field(gt=0)
    """The full penalty applies from this many sampled tokens on."""
    buffer: int = Field(gt=0)
    """The penalty grows from 0 over this many tokens before the limit."""
    factor: float = Field(gt=0)
    """The full penalty, in reward units."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.buffer > self.limit:
            raise ValueError(f"buffer {self.buffer} is larger than limit {self.limit}")
        return self


class Advantage(Strict):
    """How rewards become advantages."""

    baseline: Baseline
    dynamic_sampling_rounds: int = Field(default=0, ge=0)
    """How many times per step zero-variance groups (rewards all alike) are replaced by groups of the next
    prompts (DAPO); 0: no dynamic sampling. Groups still without variance after that stay."""
    overlong: Overlong | None = None
    """Null: length is not penalised."""


class Gate(Strict):
    """The thresholds above which credit is transferred between two calls of one tool type (Dong et al.,
    §3.4).
    """

    similarity: float = Field(gt=0, le=1)
    """θ: applies to calls that form a reference group, and to a failing call and its best group."""
    confidence: float = Field(ge=0, le=1)
    """α_min: applies to similarity times support."""


def _type(name: str) -> str:
    """The name of a tool type."""
    if name not in tool_types():
        tool = " (the tool has none: `credit` of its ToolPart sets it)" if name in TOOLS else ""
        raise ValueError(f"there is no tool type `{name}`{tool}; {or_yours(nearest(name, tool_types()))}")
    return name


ToolTypeName = Annotated[str, AfterValidator(_type)]


class Credit(Strict):
    """Credit transfer to useful tool calls of failing trajectories (Dong et al., §3.3-3.5)."""

    beta: float = Field(gt=0)
    """Weight of the transferred credit."""
    tools: dict[ToolTypeName, Gate] = Field(min_length=1)
    """Tool type -> gate; types not listed here get no credit."""
    support: bool = True
    """False leaves support out of the credit and of the confidence: table 3's `w/o sup.`."""
    clip: bool = True
    """False lets an advantage rise above 0: table 3's `w/o clip.`."""


PAPER = Credit(
    beta=0.25,  # Dong et al., table 2 and figures 8-10
    tools={
        "image_search": Gate(similarity=1.0, confidence=1.0),  # appendix B.3; similarity is 1 in all cases
        "zoom": Gate(similarity=0.7, confidence=0.5),
        "text_search": Gate(similarity=0.8, confidence=0.5),
    },
)
"""The paper's constants, for analysing runs that did not transfer credit."""
