"""One row of data. Every sample names the verifier that judges it (V-Triune §3.1)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vtune.errors import DataError
from vtune.schema.box import Box, proper
from vtune.schema.message import IMAGE, Message, Picture


@dataclass(frozen=True, slots=True)
class Evidence:
    """Where the object of the question is in a picture."""

    label: str
    image: int
    """Index into the sample's images."""
    bbox: Box
    """xyxy in pixels of the stored image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A question about pictures, its ground truth, and how a reply is to be judged.

    Raises:
        DataError: If the row contradicts itself: different numbers of marks and pictures, an
            evidence box with no picture, inside out or not finite, a ratio
            outside [0, 1].
    """

    id: str
    """Unique across all data; never renumbered."""
    source: str
    """`data_source`: metrics are reported per source."""
    prompt: tuple[Message, ...]
    images: tuple[Picture, ...] = ()
    ability: str = ""
    """Task family: math, chart, detection, grounding, counting, ocr, visual_search, search …"""
    ground_truth: str
    """The reference, in the form that the verifier reads."""
    answer: str = ""
    """The reference as a person would say it; for reading, never for judging."""
    verifier: str
    """A key of `vtune.verifiers.VERIFIERS`."""
    verifier_parm: Mapping[str, Any] = field(default_factory=dict)
    """Options of the verifier (spelt as in the published files)."""
    accuracy_ratio: float = 1.0
    format_ratio: float = 0.0
    tool_ratio: float = 0.0
    """Weights of the reward parts for this sample, in [0, 1]."""
    tools: tuple[str, ...] = ()
    """Tools that the model may call, keys of `vtune.tools.TOOLS`; empty: a single turn."""
    environment: str = ""
    """What the model interacts with, a key of `vtune.environments.ENVIRONMENTS`; empty: its `tools`."""
    evidence: tuple[Evidence, ...] = ()
    choices: tuple[str, ...] = ()
    """Options of a multiple-choice question, in order; the letter gives the position."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Everything else in `extra_info`; kept, and read only by tools, environments and habits."""

    def __post_init__(self) -> None:
        where = f"sample {self.id!r}"
        if not self.id or not self.source:
            raise DataError("a sample needs an id and a data_source", where=where, fix="fill both in")
        if not self.prompt:
            raise DataError("the prompt has no message", where=where, fix="add a user turn")
        marks = sum(message.content.count(IMAGE) for message in self.prompt)
        if marks != len(self.images):
            raise DataError(
                f"the prompt has {marks} {IMAGE} mark(s) for {len(self.images)} image(s)",
                where=where,
                fix=f"put one {IMAGE} where each image goes",
            )
        for name in ("accuracy_ratio", "format_ratio", "tool_ratio"):
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:  # also catches NaN
                raise DataError(f"{name} must be in [0, 1], got {value}", where=where, fix="scale it")
        for item in self.evidence:
            if not proper(item.bbox):
                raise DataError(
                    f"evidence box {list(item.bbox)} is empty or not finite",
                    where=where,
                    fix="write [x0, y0, x1, y1]",
                )
            if not 0 <= item.image < len(self.images):
                raise DataError(
                    f"evidence points to image {item.image} of {len(self.images)}",
                    where=where,
                    fix="count the pictures of a sample from 0",
                )

    @property
    def question(self) -> str:
        """The text of the last user turn without its `<image>` marks, as shown to a judge."""
        users = [message.content for message in self.prompt if message.role == "user"]
        return users[-1].replace(IMAGE, "").strip() if users else ""


def check_unanswered(sample: Sample) -> None:
    """Check that the last turn of a prompt is not the assistant's; records of finished runs may have one.

    In a file for supervised training it is most likely the answer, which the policy would then read.

    Raises:
        DataError: If it is the assistant's.
    """
    if sample.prompt[-1].role == "assistant":
        raise DataError(
            "the prompt ends with the assistant's turn",
            where=f"sample {sample.id!r}",
            fix="drop that turn, or the row",
        )
