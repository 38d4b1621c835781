"""The filter `labels`: samples that people doubted while viewing runs, until one of them decides."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from vtune.curate.filters import FILTERS, FilterPart
from vtune.curate.item import Item, Selected, concerns
from vtune.curate.judging import queue_row
from vtune.errors import DataError
from vtune.report.progress import Steps
from vtune.reward.recipe import RIGHT
from vtune.runs.curate.results import Results
from vtune.runs.curate.review import Opinions, decide, review_key
from vtune.schema.labels import Label, append_label, read_labels


class PeopleLabels(Selected):
    """Queues samples that people labelled as doubtful in `vtune view` for a person to review."""

    files: tuple[str, ...] = Field(min_length=1)
    """Label files that the viewer wrote: `labels.jsonl` of a run, `NAME.labels.jsonl` beside a file."""
    unreviewed: Literal["drop", "keep"] = "drop"
    """As in `label_check`."""


def why_doubted(label: Label) -> str | None:
    """The objection to a sample in a label; None if there is none.

    That an answer is right or wrong concerns its sample only if it was scored the opposite: then the ground
    truth, the verifier or the person is mistaken. `judge erred` is about the judge.
    """
    if label.label == "box wrong":
        return "its box is wrong"
    if label.rollout is None:
        return "its ground truth is wrong" if label.label == "wrong" else None
    if label.accuracy is None or label.label not in ("right", "wrong"):
        return None
    if (label.label == "right") == (label.accuracy >= RIGHT):
        return None
    return f"an answer with accuracy {label.accuracy:g} is {label.label}"


def doubts(spec: PeopleLabels) -> dict[str, list[str]]:
    """Sample id -> people's objections to it, with their notes.

    Raises:
        DataError: If a file is missing or is not a label file.
    """
    found: dict[str, list[str]] = {}
    for name in spec.files:
        file = Path(name)
        if not file.is_file():
            raise DataError(
                f"there is no file of labels {name}", fix="`vtune view` writes `labels.jsonl` into the run"
            )
        for label in read_labels(file).values():
            why = why_doubted(label)
            if why is not None:
                found.setdefault(label.sample_id, []).append(f"{why}: {label.note}" if label.note else why)
    return found


def ask_people(
    spec: PeopleLabels, items: Iterator[tuple[int, Item]], reviews: Results, *, progress: Steps
) -> Opinions:
    """Find the rows that people doubt; if a person has decided about a row, the decision counts.

    Args:
        spec: The filter.
        items: (position, row) of the remaining rows of all sources.
        reviews: People's decisions.
        progress: Advanced by one step per row.

    Raises:
        DataError: If a label file cannot be used.
    """
    doubted = doubts(spec)
    found = Opinions()
    for position, item in items:
        progress.advance()
        if not concerns(spec, item):
            continue
        place = item.source, position
        found.asked[place] = item.sample.id
        said = doubted.get(item.sample.id)
        if said is None:
            continue
        row = queue_row(review_key(item), item.sample, item.source, people=said)
        why = f"a person says: {said[0]}" if len(said) == 1 else f"{len(said)} labels say, e.g.: {said[0]}"
        decide(found, place, item, row, why, unreviewed=spec.unreviewed, reviews=reviews)
    return found


def _doubted(folder: Path, url: str) -> dict[str, Any]:
    """A label file with one objection to a row."""
    doubt = Label(key="samples:0", sample_id="doubted", source="check", rollout=None, label="wrong")
    append_label(folder / "labels.jsonl", doubt)
    return {"files": (str(folder / "labels.jsonl"),)}


FILTERS.add("labels", FilterPart(PeopleLabels, None, drops={"id": "doubted"}, example=_doubted))
