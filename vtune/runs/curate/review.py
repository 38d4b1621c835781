"""What a judge says about samples, and what a person says about those that the judge doubts."""

import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from vtune.curate.item import Item, asked_key, concerns, input_pictures, judged_key
from vtune.curate.judging import (
    ExternalKnowledge,
    Label,
    LabelCheck,
    Review,
    knowledge_prompt,
    label_prompt,
    queue_row,
    read_knowledge,
    read_label,
    read_review,
)
from vtune.errors import DataError, ServiceError
from vtune.files.json_text import parse_json
from vtune.files.reading import MAX_DOCUMENT, read_text
from vtune.files.writing import write_atomically
from vtune.judge.client import JudgeClient
from vtune.judge.endpoint import JudgeEndpoint
from vtune.report.progress import Steps
from vtune.reward.preflight import ping_judge
from vtune.runs.curate.results import Results
from vtune.runs.curate.rows import chunks
from vtune.schema.message import Picture
from vtune.verifiers import check_ground_truth

AHEAD = 4
"""Number of questions to read ahead per concurrent request (ours)."""
REPLIES = "judge.jsonl"
"""File in `OUT/results` that stores the judges' replies."""


@dataclass(slots=True)
class Opinions:
    """The results of a paid filter; rows are identified by source and position."""

    dropped: dict[tuple[str, int], str] = field(default_factory=dict)
    unscored: dict[tuple[str, int], str] = field(default_factory=dict)
    """Rows that could not be judged, and why; the next run asks a failed service again."""
    asked: dict[tuple[str, int], str] = field(default_factory=dict)
    """Rows that the filter looked at, with their ids."""
    corrected: dict[tuple[str, int], str] = field(default_factory=dict)
    """Ground truths corrected by a person."""
    queue: list[dict[str, Any]] = field(default_factory=list)
    """Lines for a person to review."""
    notes: dict[tuple[str, int], float] = field(default_factory=dict)
    """Numbers to store with the rows."""


def check_judges(judges: Mapping[str, JudgeEndpoint], results: Path, *, pictures: bool) -> None:
    """Check that the judges of a first run answer, before rows are read for them.

    If replies are already stored, the rest may no longer need a judge, so nothing is checked.

    Args:
        judges: Filter -> its judge.
        results: Folder of stored results.
        pictures: Whether the judges will be shown pictures.

    Raises:
        ServiceError: If one does not answer; names the filter.
        RecipeError: If its key is not set.
    """
    replies = results / REPLIES
    if replies.is_file() and replies.stat().st_size:
        return
    met: list[JudgeEndpoint] = []
    for name, judge in judges.items():
        if judge in met:
            continue
        try:
            ping_judge(judge, pictures=pictures)
        except ServiceError as error:
            remedy = error.fix or "start its judge or name another one"
            raise ServiceError(
                f"filter `{name}`: {error.what}",
                where=error.where,
                fix=f"{remedy}; then start the same command again",
            ) from None
        met.append(judge)


def too_many(unscored: int, share: float, rows: int) -> bool:
    """Whether more rows are unscored than the allowed share of all rows, which is then final."""
    return unscored > share * rows


async def judge_all(
    spec: ExternalKnowledge | LabelCheck,
    items: Iterator[tuple[int, Item]],
    reviews: Results,
    *,
    cache: Path,
    rows: int,
    progress: Steps,
) -> Opinions:
    """Ask the judge about every row that the filter looks at, until too many are unscored.

    Args:
        spec: The filter.
        items: (position, row) of the remaining rows of all sources.
        reviews: People's decisions.
        cache: Where the judge's replies are stored.
        rows: Number of remaining rows.
        progress: Advanced by one step per row.
    """
    found = Opinions()
    async with JudgeClient(spec.judge, cache=cache) as client:
        for batch in chunks(items, spec.judge.concurrency * AHEAD):
            wanted = [(position, item) for position, item in batch if concerns(spec, item)]
            opinions = await asyncio.gather(*[_ask(spec, client, item) for _, item in wanted])
            for (position, item), opinion in zip(wanted, opinions, strict=True):
                place = item.source, position
                found.asked[place] = item.sample.id
                _take(spec, found, place, item, opinion, reviews)
            for _ in batch:
                progress.advance()
            if too_many(len(found.unscored), spec.max_unscored, rows):
                break
    return found


@dataclass(frozen=True, slots=True)
class _Failed:
    why: str
    ours: bool
    """Whether a picture could not be read; otherwise the judge did not answer."""


async def _ask(
    spec: ExternalKnowledge | LabelCheck, client: JudgeClient, item: Item
) -> bool | Label | _Failed:
    """Whether outside knowledge is needed, or the judge's opinion of the label."""
    sample = item.sample
    try:
        pictures = [Picture(data=data) for data in input_pictures(item)]
        if isinstance(spec, ExternalKnowledge):
            asked = knowledge_prompt(sample)
            return await client.ask_for(asked, pictures, read_knowledge, "VISUAL or EXTERNAL")
        return await client.ask_for(label_prompt(sample), pictures, read_label, "RIGHT, WRONG or UNSURE")
    except DataError as error:
        return _Failed(error.what, ours=True)
    except ServiceError as error:
        return _Failed(error.what, ours=False)


def _take(
    spec: ExternalKnowledge | LabelCheck,
    found: Opinions,
    place: tuple[str, int],
    item: Item,
    opinion: bool | Label | _Failed,
    reviews: Results,
) -> None:
    """Record one opinion in `found`."""
    if isinstance(opinion, _Failed):
        (found.dropped if opinion.ours else found.unscored)[place] = opinion.why
    elif isinstance(spec, ExternalKnowledge):
        if opinion:
            found.dropped[place] = "the judge says that it needs knowledge from outside the pictures"
    elif isinstance(opinion, str) and opinion != "right":
        row = queue_row(review_key(item), item.sample, item.source, opinion)
        why = f"the judge says {opinion!r} of its label"
        decide(found, place, item, row, why, unreviewed=spec.unreviewed, reviews=reviews)


def decide(
    found: Opinions,
    place: tuple[str, int],
    item: Item,
    row: dict[str, Any],
    why: str,
    *,
    unreviewed: Literal["drop", "keep"],
    reviews: Results,
) -> None:
    """Apply a person's decision to a doubted sample; without one it is queued.

    Args:
        found: Receives the outcome.
        place: Source and position of the sample.
        item: The sample.
        row: Its line in the queue.
        why: Who doubts it, and what they said.
        unreviewed: What happens to it while it waits.
        reviews: People's decisions.
    """
    kept = reviews.get(row["key"])
    if kept is None:
        found.queue.append(row)
        if unreviewed == "drop":
            found.dropped[place] = f"{why}; waits for a person's decision"
        return
    review = Review(**kept)
    if review.decision == "drop":
        found.dropped[place] = "a person has found its label wrong"
    elif review.ground_truth is not None:
        try:
            check_ground_truth(replace(item.sample, ground_truth=review.ground_truth))
        except DataError as error:
            found.queue.append(row)
            found.dropped[place] = f"what a person wrote instead of its label cannot be used: {error.what}"
        else:
            found.corrected[place] = review.ground_truth


def review_key(item: Item) -> str:
    """Hash of a sample's content and label, which a person's decision is about."""
    return judged_key(asked_key(item.sample, input_pictures(item), {}), item.sample)


def take_reviews(queue: Path, reviews: Results) -> int:
    """Store the decisions that a person has written into the queue; return their number.

    Raises:
        DataError: Names the first line that cannot be read.
    """
    if not queue.exists():
        return 0
    taken = 0
    # Not `splitlines`: it also splits at other characters, which a text may contain.
    for number, line in enumerate(_text(queue).split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{queue}:{number}"
        try:
            row = parse_json(line)
        except ValueError as error:
            raise DataError(f"not JSON: {error}", where=where, fix="fix the line") from None
        decided = read_review(row, where)
        if decided is not None:
            key, review = decided
            said = {"decision": review.decision, "ground_truth": review.ground_truth}
            try:
                if reviews.get(key) != said:
                    reviews.put(key, said)
            except ValueError:
                raise DataError("`key` has been changed", where=where, fix="restore the line") from None
            taken += 1
    return taken


def _text(queue: Path) -> str:
    try:
        return read_text(queue, limit=MAX_DOCUMENT)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the queue cannot be read: {error}", where=str(queue), fix="restore it") from None


def write_queue(queue: Path, lines: list[dict[str, Any]]) -> None:
    """Write what waits for a person; remove the file if nothing does."""
    if lines:
        write_atomically(queue, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    else:
        queue.unlink(missing_ok=True)
