"""A custom prompt style: the question, and how long the answer may be."""

from collections.abc import Sequence
from dataclasses import replace

from vtune.rollout.prompts import STYLES, PromptStyle, Schemas, Size
from vtune.schema.message import Message
from vtune.schema.sample import Sample


def terse(
    sample: Sample, names: Sequence[str], sizes: Sequence[Size], schemas: Schemas, draw: int
) -> tuple[Message, ...]:
    """The sample's turns, and after the last: a few words are enough."""
    *before, last = sample.prompt
    return (*before, replace(last, content=f"{last.content}\nAnswer in at most five words."))


STYLES.add("terse", PromptStyle(terse))
