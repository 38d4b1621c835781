"""Rules for cold-start traces (CodeV, §9: which examples of Thyme-SFT are trained on)."""

from typing import Self

from pydantic import Field, model_validator

from vtune.curate.filters import FILTERS, FilterPart
from vtune.curate.item import Item, Selected
from vtune.schema.trajectory import Call
from vtune.tools import python

ONE = Call(tool=python.NAME, arguments="{}", status="ok", span=(0, 1))


class ToolRounds(Selected):
    """Drops traces with fewer or more tool calls than wanted."""

    at_least: int = Field(default=1, ge=0)
    at_most: int = Field(default=2, ge=0)
    """CodeV, §9: single-round and second-round tool use."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.at_least > self.at_most:
            raise ValueError("at_least exceeds at_most")
        return self


class CompleteTraces(Selected):
    """Drops traces that teach a mistake: a call that failed, or an end without a single answer."""


def rounds_outside(spec: ToolRounds, item: Item) -> str | None:
    """The reason to drop a trace with a different number of tool calls, or None."""
    calls = len(item.trace.calls)
    if spec.at_least <= calls <= spec.at_most:
        return None
    return f"{calls} tool calls, not {spec.at_least} to {spec.at_most}"


def broken(spec: CompleteTraces, item: Item) -> str | None:
    """The reason to drop a trace that fails somewhere, or None."""
    trace = item.trace
    for number, call in enumerate(trace.calls):
        if call.status != "ok":
            return f"call {number} ended with status {call.status!r}"
    if trace.stop_reason != "answer" or trace.answer is None:
        return f"no single answer at the end (stop reason {trace.stop_reason!r})"
    return None


FILTERS.add(
    "tool_rounds",
    FilterPart(
        ToolRounds, rounds_outside, looks_at=("traces",), keeps={"calls": (ONE,)}, drops={"calls": ()}
    ),
)
FILTERS.add(
    "complete_traces",
    FilterPart(
        CompleteTraces,
        broken,
        looks_at=("traces",),
        keeps={"stop_reason": "answer", "answer": "A"},
        drops={"stop_reason": "length"},
    ),
)
