"""Filters that ask a model: does a question need outside knowledge, and is its label right (CodeV §9)?

CodeV publishes neither prompt; both are ours. Labels that the second one doubts go to a person.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from vtune.curate.filters import FILTERS, FilterPart
from vtune.curate.item import Selected
from vtune.errors import DataError
from vtune.judge.endpoint import JudgeEndpoint
from vtune.judge.prompts import Prompt
from vtune.judge.replies import behind_thoughts
from vtune.schema.message import IMAGE, Message
from vtune.schema.sample import Sample

Label = Literal["right", "wrong", "unsure"]
"""What a judge thinks of a ground truth."""
Decision = Literal["keep", "drop", "fix"]
"""A person's decision about a doubted ground truth."""


class ExternalKnowledge(Selected):
    """Drops questions that pictures alone cannot answer (CodeV §9, e.g. OK-VQA)."""

    judge: JudgeEndpoint
    max_unscored: float = Field(default=0.01, ge=0, le=1)
    """The run stops if the judge gives no usable reply for a larger share of the rows."""


class LabelCheck(Selected):
    """Queues samples whose ground truth a judge doubts for a person to review (CodeV §9)."""

    judge: JudgeEndpoint
    max_unscored: float = Field(default=0.01, ge=0, le=1)
    """As in `external_knowledge`."""
    unreviewed: Literal["drop", "keep"] = "drop"
    """What happens to a doubted sample until a person has decided."""


@dataclass(frozen=True, slots=True)
class Review:
    """A person's decision about a doubted sample."""

    decision: Decision
    ground_truth: str | None = None
    """The right ground truth, if the decision is `fix`."""


KNOWLEDGE_SYSTEM = """You sort questions about pictures.
Answer VISUAL if the question can be answered by looking at the pictures closely, together with reading, \
counting, arithmetic, geometry, logic, and what every adult knows about everyday things.
Answer EXTERNAL if it needs facts that are not in the pictures, such as encyclopedic, historical or \
specialist knowledge, names of people or places, or a web search.
Reply with one word: VISUAL or EXTERNAL."""

LABEL_SYSTEM = """You check the labels of questions about pictures.
You get a question and the answer that is on record. Solve the question yourself by looking at the pictures, \
then compare. Formatting and wording do not matter.
Reply with one word: RIGHT if the recorded answer is correct, WRONG if it is not, UNSURE if the pictures \
or the question do not settle it."""

_WORD = re.compile(r"[A-Za-z]+")


def knowledge_prompt(sample: Sample) -> Prompt:
    """Prompt that asks if the pictures suffice for an answer. The pictures follow the text."""
    return Prompt(KNOWLEDGE_SYSTEM, f"Question: {_question(sample)}\n\nPictures:")


def label_prompt(sample: Sample) -> Prompt:
    """Prompt that asks if the ground truth is right. The pictures follow the text."""
    truth = sample.answer if sample.answer and sample.choices else sample.ground_truth
    if sample.answer and sample.choices and sample.answer != sample.ground_truth:
        truth = f"{sample.ground_truth} ({sample.answer})"
    return Prompt(LABEL_SYSTEM, f"Question: {_question(sample)}\nRecorded answer: {truth}\n\nPictures:")


def read_knowledge(reply: str) -> bool | None:
    """Whether outside knowledge is needed; None if the reply is not one of the two words."""
    return {"visual": False, "external": True}.get(_one_word(reply))


def read_label(reply: str) -> Label | None:
    """The judge's opinion of the label; None if the reply is not one of the three words."""
    words: dict[str, Label] = {"right": "right", "wrong": "wrong", "unsure": "unsure"}
    return words.get(_one_word(reply))


def queue_row(
    key: str, sample: Sample, source: str, judged: Label | None = None, *, people: Sequence[str] = ()
) -> dict[str, Any]:
    """A line of the queue for manual verification; a person fills in the last two fields.

    Args:
        key: Hash of what the decision depends on.
        sample: The doubted sample.
        source: Its name in the data recipe.
        judged: A judge's opinion of its label; None if none was asked.
        people: People's objections.
    """
    return {
        "key": key,
        "id": sample.id,
        "source": source,
        "question": sample.question,
        "choices": list(sample.choices),
        "ground_truth": sample.ground_truth,
        "judge": judged,
        "people": list(people),
        "decision": None,
        "corrected": None,
    }


def read_review(row: Any, where: str) -> tuple[str, Review] | None:
    """(key, decision) of a line of the queue; None if it is not decided yet.

    Raises:
        DataError: If it is not a line of the queue, or its decision is unknown.
    """
    fix = "set `decision` to keep, drop or fix, the last with the right answer in `corrected`"
    if not isinstance(row, dict) or not isinstance(row.get("key"), str) or "decision" not in row:
        raise DataError("not a line of the review queue", where=where, fix="keep `key` and `decision`")
    decision, corrected = row["decision"], row.get("corrected")
    if decision is None:
        if corrected is not None:
            raise DataError("`corrected` is given without a decision", where=where, fix=fix)
        return None
    if decision not in ("keep", "drop", "fix"):
        raise DataError(f"unknown decision {decision!r}", where=where, fix=fix)
    if (decision == "fix") != isinstance(corrected, str):
        raise DataError("`corrected` is only for the decision fix", where=where, fix=fix)
    return row["key"], Review(decision, corrected)


def _question(sample: Sample) -> str:
    listed = [f"{chr(ord('A') + number)}. {choice}" for number, choice in enumerate(sample.choices)]
    shown = [line for line in listed if line not in sample.question]
    return "\n".join([sample.question, *shown])


def _one_word(reply: str) -> str:
    words = _WORD.findall(behind_thoughts(reply))
    return words[0].lower() if len(words) == 1 else ""


def _asking(folder: Path, url: str) -> dict[str, Any]:
    """A judge at an endpoint."""
    asked = {"temperature": 0.0, "max_tokens": 8, "concurrency": 1, "retries": 0, "timeout_s": 60.0}
    return {"judge": {"base_url": url, "model": "judge", "api_key_env": None, **asked}}


FILTERS.add(
    "external_knowledge",
    FilterPart(
        ExternalKnowledge,
        None,
        drops={"prompt": (Message("user", f"{IMAGE}Who painted it?"),)},
        example=_asking,
        says=lambda text: "EXTERNAL" if "painted" in text else "VISUAL",
    ),
)
FILTERS.add(
    "label_check",
    FilterPart(
        LabelCheck,
        None,
        keeps={"ground_truth": "2"},
        drops={"ground_truth": "3"},
        example=_asking,
        says=lambda text: "RIGHT" if "Recorded answer: 2" in text else "WRONG",
    ),
)
