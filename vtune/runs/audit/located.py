"""Which samples stored trajectories answer, and the settings by which they are judged."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field, model_validator

from vtune.config import find, load_recipe
from vtune.data.formats.samples import NAME as SAMPLES
from vtune.errors import DataError, RecipeError
from vtune.metrics.log import read_metrics
from vtune.protocols import ProtocolName
from vtune.protocols import vtune as ours
from vtune.reward.recipe import RewardRecipe
from vtune.reward.schedule import thresholds_at
from vtune.runs.evaluate.checking import check_paths
from vtune.runs.evaluate.questions import (
    AnswerIn,
    Choices,
    Format,
    Source,
    as_today,
    read_records,
)
from vtune.schema.sample import Sample
from vtune.schema.source_names import ALL
from vtune.sections import Strict
from vtune.tools import ToolName
from vtune.verifiers import verifier_of
from vtune.verifiers.detection import with_iou
from vtune.verifiers.spaces import Space
from vtune.view.place import check_no_record, kind_of_file, no_trajectories, portions_of, step_of

SEED = 0
"""Seed of the bootstrap if no run gives one: the same trajectories give the same intervals."""


class _Asked(Strict):
    """The settings that an audit reads from a run; its other sections may be out of date.

    Keys newer than the run default to the behaviour before they existed.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    data: tuple[str, ...] = Field(min_length=1)
    seed: int
    reward: RewardRecipe
    steps: int | None = None
    """Number of steps of a training run; evaluations have none."""
    format: Format = SAMPLES
    """Only suites have another one."""
    offers: tuple[ToolName, ...] | None = None
    answer_in: AnswerIn | None = None
    answer_default: AnswerIn | None = None
    kind: str | None = None
    protocol: ProtocolName = ours.NAME
    choices: Choices | None = None
    reply_space: Space | None = None
    grader: dict[str, Any] | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_older_files(cls, values: Any) -> Any:
        return as_today(values) if isinstance(values, dict) else values


@dataclass(frozen=True, slots=True)
class Audited:
    """Where trajectories are, which samples they answer, and how they are judged."""

    files: tuple[Path, ...]
    source: Source
    reward: RewardRecipe
    seed: int
    """Seed of the bootstrap: the run's own, so that an audit reproduces an evaluation's numbers."""
    settings: str
    """The file that `reward` and `seed` were read from."""
    has_grader: bool = False
    """Whether an evaluation names a model for protocols that ask one."""
    thresholds: tuple[float, ...] = ()
    """IoU thresholds at which boxes were judged; empty: none, or not the same for all files."""


def locate(path: Path, data: tuple[str, ...]) -> Audited:
    """Locate the trajectories of a run or file, and the samples that they answer.

    Args:
        path: A folder, or a Parquet file.
        data: Files of the samples; empty: the run's own.

    Raises:
        DataError: If there are no trajectories, or nothing says which samples they answer.
    """
    if not path.exists():
        raise DataError(f"there is no file or folder {path}", fix="give a run folder or a Parquet file")
    check_no_record(path)
    if path.is_file() and kind_of_file(path) == "samples":
        raise DataError(
            "this is a file of samples, not of trajectories",
            where=str(path),
            fix="give a run, or a Parquet file of trajectories, and give these samples with --data",
        )
    folder = path if path.is_dir() else path.parent
    files: tuple[Path, ...] = (path,)
    if path.is_dir():
        files = tuple(portions_of(path) or path.glob("trajectories.parquet"))
    if not files:
        raise no_trajectories(path)
    for settings in (folder / "suite.yaml", folder / "recipe.yaml", folder.parent / "recipe.yaml"):
        if settings.is_file():
            asked = load_recipe(settings, _Asked)
            source = Source(
                data=data or asked.data,
                format=asked.format,
                data_from="restore it",
                offers=asked.offers,
                answer_in=asked.answer_in,
                answer_default=asked.answer_default,
                kind=asked.kind,
                protocol=asked.protocol,
                choices=asked.choices,
                reply_space=asked.reply_space,
            )
            return Audited(
                files,
                source,
                asked.reward,
                asked.seed,
                str(settings),
                has_grader=asked.grader is not None,
                thresholds=_thresholds(asked, files, settings.with_name("metrics.jsonl")),
            )
    if not data:
        raise DataError(
            "cannot tell which samples these trajectories answer",
            where=str(path),
            fix="give the Parquet file of the samples with --data",
        )
    reward = load_recipe(find("codev", "recipes.rl"), _Asked).reward
    return Audited(files, _samples(data), reward, SEED, "the shipped recipe codev")


def _thresholds(asked: _Asked, files: Sequence[Path], metrics: Path) -> tuple[float, ...]:
    """The IoU thresholds of the files; empty if there are none, if they differ, or if they are not known.

    Args:
        asked: The run's settings.
        files: Its trajectories.
        metrics: What the run has recorded. An adaptive schedule is known only from there; a staged one may
            have been stretched since, by a resumed run with more steps.
    """
    iou = asked.reward.iou
    if iou is None or iou.schedule in ("fixed", "average"):
        return () if iou is None else iou.thresholds
    steps = {step_of(file) for file in files}
    step = steps.pop()
    if steps or step is None:
        return ()
    for row in read_metrics(metrics) if metrics.is_file() else ():
        if (row.step, row.source) == (step, ALL) and "iou_threshold" in row.values:
            return (row.values["iou_threshold"],)
    if iou.schedule == "adaptive" or asked.steps is None:
        return ()
    return thresholds_at(iou, None, step=step, steps=asked.steps)


def check_thresholds(audited: Audited) -> None:
    """Check that boxes that are judged again are judged at the threshold of their step.

    Raises:
        RecipeError: If nothing gives one.
    """
    if audited.thresholds:
        return
    for sample in read_records(audited.source):
        if verifier_of(sample).reads_iou and sample.verifier_parm.get("iou") is None:
            raise RecipeError(
                f"verifier `{sample.verifier}` needs an IoU threshold for boxes, and nothing here says at "
                "which one these trajectories were judged",
                where=f"sample {sample.id!r}; {audited.settings}",
                fix="name a file in the folder `trajectories` of the run, whose recipe.yaml and "
                "metrics.jsonl say it, or set `iou` in verifier_parm of the samples",
            )


def samples_of(audited: Audited) -> dict[str, Sample]:
    """Id -> sample, in the form in which its replies are judged, without pictures.

    If files were judged at different thresholds for boxes, samples have none.

    Raises:
        DataError: If a file is missing or cannot be read, or files have different samples with one id.
    """
    check_paths(audited.source)
    samples: dict[str, Sample] = {}
    for sample in read_records(audited.source):
        if samples.setdefault(sample.id, sample) != sample:
            raise DataError(
                f"two different samples have the id {sample.id!r}: cannot tell which of them was answered",
                where=", ".join(audited.source.data),
                fix="name only the files that the rollouts used",
            )
    if not audited.thresholds:
        return samples
    return {
        name: with_iou(sample, audited.thresholds) if verifier_of(sample).reads_iou else sample
        for name, sample in samples.items()
    }


def _samples(data: Sequence[str]) -> Source:
    """Parquet files of samples, unchanged."""
    return Source(data=tuple(data), format=SAMPLES, data_from="restore it", choices=None)
