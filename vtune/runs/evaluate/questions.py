"""The questions of a suite: where they are stored, and how each is read and put."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from vtune.config import Uses
from vtune.data.formats.building import Options
from vtune.data.formats.checked import rows_of
from vtune.data.formats.samples import NAME as SAMPLES
from vtune.data.formats.source import Place
from vtune.data.formats.table import FORMATS
from vtune.data.offer import offering
from vtune.data.options import presented
from vtune.errors import DataError, RecipeError
from vtune.protocols import PROTOCOLS, ProtocolName
from vtune.protocols import vtune as ours
from vtune.protocols.protocol import Rule, put, wrong_kind
from vtune.runs.evaluate.revisions import is_note
from vtune.schema.message import Picture
from vtune.schema.parquet import fingerprint, load_picture, scan_samples
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory
from vtune.sections import Strict
from vtune.tools import ToolName
from vtune.verifiers import choice, verifier_of
from vtune.verifiers.spaces import Space

Format = Annotated[str, AfterValidator(FORMATS.known)]

AS_THEY_ARE = "{question}\n{options}"

Question = tuple[Sample, tuple[bytes, ...]]
"""A sample with its encoded pictures."""

AnswerIn = Literal["tag", "boxed", "reply"]
OFFICIAL = "official"


class Choices(Strict):
    """How multiple-choice questions are presented, and how their answers are read."""

    template: str | None = None
    """The text after the pictures; `{question}` and `{options}` are filled in. Null: the protocol's."""
    order: Literal["official"] | int
    """`official`: as in the data. A number: the seed of an order that depends on it and the sample's id."""
    letter_rule: Literal["strict", "loose"] | None = None
    """For the verifier `choice`: accept only a letter or an option's own text (strict), or any text with a
    clear meaning (loose). Null: the protocol decides."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if (self.template is None) != (self.letter_rule is None):
            raise ValueError(
                "`template` and `letter_rule` must both be given, or both be left to the protocol"
            )
        for place in ("{question}", "{options}"):
            if self.template is not None and self.template.count(place) != 1:
                raise ValueError(f"the template must hold {place} once")
        return self


class Source(Strict):
    """Where questions come from and how they are presented: a part of every suite."""

    uses: Uses = ()
    """Files with the user's own parts."""
    data: tuple[str, ...] = Field(min_length=1)
    format: Format
    """How `data` are read: our own Parquet layout, or a benchmark as published."""
    data_from: str
    """How to get the data; shown if they are missing."""
    offers: tuple[ToolName, ...] | None = None
    """Tools that every question offers; null: those named in the data."""
    answer_in: AnswerIn | None = None
    """Where a reply's answer is; null: as the samples say."""
    answer_default: Annotated[AnswerIn | None, Field(exclude_if=lambda place: place is None)] = None
    """Where the answer is if neither this suite nor the sample says; null: in `<answer>`."""
    kind: str | None = None
    """Kind of question, for which a protocol has a rule."""
    protocol: ProtocolName = ours.NAME
    """Protocol whose prompt, parser and aggregation are used."""
    choices: Choices | None = None
    """Null leaves multiple choice as in the data, unless the protocol sets its presentation."""
    reply_space: Space | None = None
    """The coordinate space in which the policy is asked for boxes and points, and in which they are read
    (`spaces_of`);
    null: as the samples say."""

    @model_validator(mode="before")
    @classmethod
    def _from_older_files(cls, values: Any) -> Any:
        return as_today(values) if isinstance(values, dict) else values

    @model_validator(mode="after")
    def _protocol_fits(self) -> Self:
        rule = PROTOCOLS[self.protocol].rule(self.kind)
        if rule is None:
            raise ValueError(wrong_kind(self.protocol, self.kind).what)
        template = None if self.choices is None else self.choices.template
        if rule.ask is not None and template is not None:
            raise ValueError(
                f"protocol `{self.protocol}` itself defines how multiple choice is asked and read"
            )
        if rule.ask is None and self.choices is not None and template is None:
            raise ValueError("`choices` needs a `template` and a `letter_rule`: the protocol has none")
        return self


def as_today(values: dict[str, Any]) -> dict[str, Any]:
    """The values of a suite, with renamed keys under their current names.

    `choices.shuffle` was the seed of the order, or null; `choices.answer_in` was only for multiple choice.
    """
    choices = values.get("choices")
    if not isinstance(choices, dict) or not {"shuffle", "answer_in"} & choices.keys():
        return values
    now = {key: value for key, value in choices.items() if key not in ("shuffle", "answer_in")}
    if "shuffle" in choices:
        now.setdefault("order", OFFICIAL if choices["shuffle"] is None else choices["shuffle"])
    values = values | {"choices": now}
    if "answer_in" in choices and values.get("answer_in") is None:
        values["answer_in"] = choices["answer_in"]
    return values


class Unfit(DataError):
    """A row that can be read, but that its suite cannot ask or score."""


def read_questions(source: Source, *, limit: int | None, rank: int = 0, world: int = 1) -> Iterator[Question]:
    """The questions in order, pictures loaded one question at a time.

    Args:
        source: Where they are.
        limit: Maximum number of questions in total.
        rank: Rank of this process, which gets every `world`-th question, starting with number `rank`.
        world: Number of processes that share them.

    Raises:
        DataError: At the first that cannot be read.
    """
    count = 0
    for path in paths_of(source):
        for entry in scan_questions(source, path):
            if count == limit:
                return
            if isinstance(entry, DataError):
                raise entry
            if count % world == rank:
                yield entry, tuple(load_picture(picture, path.parent) for picture in entry.images)
            count += 1


def read_records(source: Source) -> Iterator[Sample]:
    """The samples without their pictures, small enough to keep a whole benchmark in memory.

    Raises:
        DataError: At the first that cannot be read.
    """
    for path in paths_of(source):
        for entry in scan_questions(source, path, pictures=False):
            if isinstance(entry, DataError):
                raise entry
            yield without_pictures(entry)


def read_published(source: Source) -> Iterator[Sample]:
    """The samples as in their data, before the suite changes them, without their pictures.

    Raises:
        DataError: At the first that cannot be read.
    """
    for path in paths_of(source):
        for entry in _entries(source.format, path, pictures=False):
            if isinstance(entry, DataError):
                raise entry
            yield without_pictures(entry)


def without_pictures(sample: Sample) -> Sample:
    """The sample with its pictures replaced by empty ones."""
    return replace(sample, images=(Picture(),) * len(sample.images))


def fingerprints(source: Source) -> dict[str, str]:
    """SHA-256 of each data file; for a folder, over the names and contents of its files."""
    return {name: _fingerprint(Path(name)) for name in source.data}


def paths_of(source: Source) -> Sequence[Path]:
    """The source's files and folders."""
    return [Path(name) for name in source.data]


def scan_questions(source: Source, path: Path, *, pictures: bool = True) -> Iterator[Sample | DataError]:
    """One entry per row: the sample as the suite presents it, or what is wrong with it."""
    for entry in _entries(source.format, path, pictures=pictures):
        try:
            yield entry if isinstance(entry, DataError) else _put(source, entry)
        except DataError as error:
            yield unfit(error)


def unfit(error: DataError) -> Unfit:
    """The same error as a problem of the suite, not of the file."""
    return Unfit(error.what, where=error.where, fix=error.fix)


def _entries(name: str, path: Path, *, pictures: bool = True) -> Iterator[Sample | DataError]:
    """The rows of a file in a format, without what an import adds.

    Args:
        name: The format.
        path: The file.
        pictures: Whether pictures are needed; if not, reading them is avoided where possible.

    Raises:
        RecipeError: If the format does not hold samples.
    """
    layout = FORMATS[name]
    if layout.makes != "samples":
        raise RecipeError(f"format `{name}` holds {layout.makes}, not samples", fix="name another `format`")
    if name == SAMPLES and not pictures:
        yield from scan_samples(path, pictures=False)
        return
    if layout.scan is not None:
        yield from layout.scan(path)
        return
    for place, entry in rows_of(layout, path, Options()):
        if isinstance(entry, DataError) and path.is_dir():
            entry = _placed(entry, place)
        if not isinstance(entry, Trajectory):
            yield entry


def _placed(error: DataError, place: Place) -> DataError:
    """The error of a row of a folder with the file that holds the row."""
    if error.where.startswith(place.where):
        return error
    where = f"{place.where}, {error.where}" if error.where else place.where
    return DataError(error.what, where=where, fix=error.fix)


def _put(source: Source, sample: Sample) -> Sample:
    """The sample as the suite presents it."""
    if source.offers is not None:
        sample = offering(sample, source.offers)
    rule = PROTOCOLS[source.protocol].rule(source.kind)
    sample = read_in(sample, space_of(source, rule))
    choices = source.choices
    if choices is not None:
        letter_rule = {} if choices.letter_rule is None else {"letter_rule": choices.letter_rule}
        sample = presented(
            sample,
            template=choices.template or AS_THEY_ARE,
            shuffle=choices.order if isinstance(choices.order, int) else None,
            parm=letter_rule if sample.verifier == choice.NAME else {},
        )
    if rule is not None:
        sample = put(sample, rule)
    place = source.answer_in or sample.verifier_parm.get("answer_in") or source.answer_default
    if place is None or verifier_of(sample).reads_outcome:
        return sample
    return replace(sample, verifier_parm={**sample.verifier_parm, "answer_in": place})


def space_of(source: Source, rule: Rule | None) -> Space | None:
    """The space in which coordinates of replies are read: the suite's, otherwise the rule's."""
    return source.reply_space or (None if rule is None else rule.reply_space)


def read_in(sample: Sample, space: Space | None) -> Sample:
    """The sample with its replies' coordinates read in a given space; None leaves it to the sample."""
    if space is None or not verifier_of(sample).answers_in_boxes:
        return sample
    return replace(sample, verifier_parm={**sample.verifier_parm, "reply_space": space})


def _fingerprint(path: Path) -> str:
    if path.is_file():
        return fingerprint(path)
    files = sorted(file for file in path.rglob("*") if file.is_file() and not is_note(file, path))
    lines = [f"{file.relative_to(path)} {fingerprint(file)}\n" for file in files]
    return hashlib.sha256("".join(lines).encode()).hexdigest()
