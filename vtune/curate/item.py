"""A row as filters see it: a sample or a trace, and where it came from."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vtune.schema.message import IMAGE, Picture
from vtune.schema.parquet import load_picture
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory
from vtune.sections import Strict

Record = Sample | Trajectory


ABILITIES = frozenset(
    {"math", "puzzle", "science", "chart", "detection", "cv_detection", "grounding", "counting", "ocr"}
)
"""Abilities of V-Triune's data (Table 1, Orsta-Data-47k): a filter may name them even if no row has them."""


@dataclass(frozen=True, slots=True)
class Item:
    """One row of a source."""

    record: Record
    source: str
    """Name in the data recipe."""
    base: Path
    """Folder that picture paths are relative to."""

    @property
    def sample(self) -> Sample:
        """The row as a sample; recipes over traces have no filter that needs one."""
        if not isinstance(self.record, Sample):
            raise TypeError("this row is a trace, not a sample")
        return self.record

    @property
    def trace(self) -> Trajectory:
        """The row as a trace."""
        if not isinstance(self.record, Trajectory):
            raise TypeError("this row is a sample, not a trace")
        return self.record


class Selected(Strict):
    """Keys common to all filters: the name, and which rows the filter looks at. All others pass."""

    filter: str
    """A key of `vtune.curate.filters.FILTERS`."""
    rows: Literal["all"] | tuple[str, ...] = "all"
    """`all`, or names of sources and abilities."""


def concerns(spec: Selected, item: Item) -> bool:
    """Whether a filter applies to a row."""
    if spec.rows == "all":
        return True
    return item.source in spec.rows or (isinstance(item.record, Sample) and item.record.ability in spec.rows)


def identity(record: Record) -> str:
    """The id of a sample; for a trace, the id of its sample."""
    return record.id if isinstance(record, Sample) else record.sample_id


def question(record: Record) -> str:
    """The question without `<image>` marks: the last user turn of a sample, the first of a trace."""
    if isinstance(record, Sample):
        return record.question
    users = [message.content for message in record.messages if message.role == "user"]
    return users[0].replace(IMAGE, "").strip() if users else ""


def input_pictures(item: Item) -> list[bytes]:
    """The encoded input pictures of the question, in order.

    Raises:
        DataError: If a picture's file cannot be read.
    """
    pictures: Sequence[Picture] = item.record.images
    return [load_picture(picture, item.base) for picture in pictures if picture.origin == "input"]


def asked_key(sample: Sample, pictures: Sequence[bytes], settings: Mapping[str, Any]) -> str:
    """SHA-256, in hexadecimal, of everything that a reply to a sample depends on; ids and sources do not
    count.

    Args:
        sample: The question.
        pictures: Its encoded pictures.
        settings: Whatever else the reply depends on; values that JSON can represent.
    """
    asked = {
        "prompt": [[message.role, message.content, list(message.images)] for message in sample.prompt],
        "choices": list(sample.choices),
        "tools": list(sample.tools),
        "pictures": [hashlib.sha256(picture).hexdigest() for picture in pictures],
        "settings": dict(settings),
    }
    return digest(asked)


def judged_key(asked: str, sample: Sample) -> str:
    """SHA-256 of everything that the verdict on a reply depends on; `asked` is the reply's own key."""
    return digest([asked, sample.ground_truth, sample.verifier, dict(sample.verifier_parm), sample.answer])


def digest(values: Any) -> str:
    """SHA-256, in hexadecimal, of values that JSON can represent; the order of keys does not matter."""
    return hashlib.sha256(json.dumps(values, sort_keys=True, ensure_ascii=True).encode()).hexdigest()
