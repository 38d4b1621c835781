"""What every export starts from: a rollout with its question, its answer, and its pictures as files."""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from vtune.files.writing import write_atomically
from vtune.protocols import PROTOCOLS
from vtune.protocols.protocol import Reads
from vtune.runs.evaluate.finished import RESULTS, TRAJECTORIES, Finished
from vtune.schema.message import Picture
from vtune.schema.parquet import load_picture
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory
from vtune.verifiers import verifier_of
from vtune.verifiers.verifier import given_answer

_MAGIC = {b"\x89PNG": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif", b"RIFF": "webp", b"BM": "bmp"}


@dataclass(frozen=True, slots=True)
class Row:
    """A rollout with its question and prediction."""

    number: int
    """Position of its question in the data, from 0."""
    sample: Sample
    """The question as asked, without its pictures."""
    trajectory: Trajectory
    question: str
    """The question as in the data, without options and instructions."""
    prediction: str
    """What the harness's parser receives; empty if the policy gave no answer."""

    @property
    def score(self) -> float | None:
        """The evaluation's score by its protocol; None: unscored."""
        reward = self.trajectory.reward
        return None if reward is None else reward.accuracy


def rows(finished: Finished, harness: str) -> Iterator[Row]:
    """The rollouts with a reply, in the order of the questions.

    Args:
        finished: The evaluation.
        harness: The protocol whose parser reads the predictions; it decides if the parser receives the answer
            or all that the policy wrote. Without a rule for the suite: the answer.
    """
    rule = PROTOCOLS[harness].rule(finished.suite.kind)
    reads: Reads = "answer" if rule is None else rule.reads
    numbers = {name: number for number, name in enumerate(finished.samples)}
    for trajectory in finished.trajectories():
        if trajectory.stop_reason != "error":
            sample = finished.samples[trajectory.sample_id]
            yield Row(
                numbers[sample.id],
                sample,
                trajectory,
                finished.questions[sample.id],
                _handed(trajectory.reply, sample, reads),
            )


def _handed(reply: str, sample: Sample, reads: Reads) -> str:
    if reads == "reply" or verifier_of(sample).reads_outcome:
        return reply
    return given_answer(reply, sample) or ""


def task_of(finished: Finished, names: dict[str, str]) -> str:
    """A harness's name for the benchmark of an evaluation.

    Args:
        finished: The evaluation.
        names: File or folder of the data, without its suffix -> the harness's name; others keep their own.
    """
    stem = Path(finished.suite.data[0]).stem
    return names.get(stem, stem)


def model_of(finished: Finished) -> str:
    """The model's name, made safe for file names."""
    return re.sub(r"[^\w.-]+", "-", str(finished.results["model"])).strip("-.") or "model"


def ended(finished: Finished) -> datetime:
    """When the evaluation ended."""
    return datetime.fromtimestamp((finished.folder / RESULTS).stat().st_mtime, UTC)


@dataclass(slots=True)
class Pictures:
    """The pictures of an export, each in its own file named by its content."""

    finished: Finished
    out: Path
    written: set[str] = field(default_factory=set)

    def encoded(self, picture: Picture) -> bytes:
        """The bytes of a stored picture."""
        return load_picture(picture, (self.finished.folder / TRAJECTORIES).parent)

    def names(self, pictures: Sequence[Picture]) -> list[str]:
        """Write pictures that do not exist yet; return their paths in the export."""
        found = []
        for picture in pictures:
            data = self.encoded(picture)
            name = f"images/{hashlib.sha256(data).hexdigest()[:32]}.{kind_of(data)}"
            if name not in self.written:
                write_atomically(self.out / name, data)
                self.written.add(name)
            found.append(name)
        return found


def kind_of(data: bytes) -> str:
    """The format of an encoded picture, as a suffix; `bin` if its first bytes are not recognised."""
    return next((kind for magic, kind in _MAGIC.items() if data.startswith(magic)), "bin")


def record(row: Row, pictures: Pictures) -> dict[str, Any]:
    """The conversation of a rollout: turns with their pictures, calls, and why it ended."""
    trajectory = row.trajectory
    names = pictures.names(trajectory.images)
    return {
        "turns": [
            {"role": turn.role, "content": turn.content, "images": [names[index] for index in turn.images]}
            for turn in trajectory.messages
        ],
        "calls": [
            {
                "tool": call.tool,
                "arguments": call.arguments,
                "status": call.status,
                "error": call.error,
                "output": call.output,
                "images": [names[index] for index in call.images],
            }
            for call in trajectory.calls
        ],
        "rollout": trajectory.rollout,
        "stop_reason": trajectory.stop_reason,
        "score": row.score,
    }


def compact(value: Any) -> str:
    """JSON on one line."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
