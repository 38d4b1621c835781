"""Checks all questions of a suite before a model is loaded."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from vtune.data.formats.samples import NAME as SAMPLES
from vtune.data.harness import UNSHOWN
from vtune.errors import DataError
from vtune.metrics.benchmarks import SCORERS, Mark, ScorerName
from vtune.parts import OURS
from vtune.reward.checking import ToolSamples, check_samples
from vtune.reward.evidence import needs_look
from vtune.runs.agent.sandbox import needs_sandbox
from vtune.runs.agent.tools import check_indexes, check_tools
from vtune.runs.data.validating import check_brought, check_data
from vtune.runs.evaluate.questions import OFFICIAL, Source, Unfit, paths_of, scan_questions, unfit
from vtune.runs.evaluate.suite import EvalSuite
from vtune.schema.sample import Sample

SUSPICIOUS = 8
"""This many questions with the same right letter are not a coincidence (ours: below 1 % with two options)."""


@dataclass(frozen=True, slots=True)
class Checked:
    """Counts from checking the questions of a suite."""

    count: int
    """Number of questions."""
    asked: ToolSamples
    """What a model is asked about while rollouts are generated and scored."""
    judged_looks: int
    """Questions whose calls a model judges in the audit, if there is one, as they have no boxes."""
    codes: int
    """Questions that need a sandbox, as they offer `python` or have an environment."""
    unshown: tuple[str, ...]
    """Ids of the questions of which a picture is not shown."""


def check_questions(suite: EvalSuite, *, limit: int | None) -> Checked:
    """Check that all questions can be read and judged, without a model; count them.

    Args:
        suite: The suite, with the reward that will score them and the tools that they may offer.
        limit: Maximum number of questions.

    Raises:
        DataError: If data are missing (says how to get them) or rows are bad (lists the first ones).
        RecipeError: If a sample names a part that no file provides, its calls need a judge and there is none,
            or it offers a tool that cannot run.
    """
    reward, feedback = suite.reward, suite.rollout.feedback
    check_indexes(suite.tools)
    count = looks = codes = 0
    asked = ToolSamples(paid=0, looks=0)
    truths: Counter[str] = Counter()
    unshown: list[str] = []
    known: set[frozenset[tuple[str, type, bool]]] = set()

    def scan(path: Path) -> Iterator[Sample | DataError]:
        nonlocal count, asked, looks, codes, unshown
        for row, entry in enumerate(scan_questions(suite, path)):
            if count == limit:
                return
            count += 1
            if isinstance(entry, Sample):
                check_brought(entry, f"{path}, row {row}")
                truths[entry.ground_truth if entry.choices else ""] += 1
                codes += needs_sandbox(entry)
                unshown += [entry.id] if UNSHOWN in entry.extra else []
                check_tools([entry], suite.tools, suite.rollout.prompt)
                looks += bool(entry.tools) and needs_look(entry, reward.evidence) and not entry.evidence
                try:
                    asked += check_samples([entry], reward, feedback=feedback)
                    _check_scored(suite.scorer, entry, known)
                except DataError as error:
                    # Reported with its row.
                    entry = error
            yield entry

    check_paths(suite)
    _check_rows(suite, scan)
    if not count:
        raise _empty(suite)
    _check_positions(suite, truths)
    return Checked(count, asked, looks, codes, tuple(unshown))


def _empty(source: Source) -> DataError:
    """The error for a suite without questions."""
    return DataError(
        "the suite has no sample",
        where=", ".join(source.data),
        fix=f"its data hold no row of format `{source.format}`; {source.data_from}",
    )


def _check_rows(source: Source, scan: Callable[[Path], Iterator[Sample | DataError]]) -> None:
    """Check all rows.

    The command that lists a file's problems does not know what the suite requires.
    """
    unfits = 0

    def counting(path: Path) -> Iterator[Sample | DataError]:
        nonlocal unfits
        for entry in scan(path):
            unfits += isinstance(entry, Unfit)
            yield entry

    try:
        if source.format == SAMPLES:
            check_data(paths_of(source), counting)
        else:
            lister = f"vtune data import {source.format} PATH --out FILE"
            again = f"give other files with --data, or get these again: {source.data_from}"
            check_data(paths_of(source), counting, lister=lister, again=again)
    except DataError as error:
        if not unfits:
            raise
        fix = "correct these rows, or leave them out; `vtune eval --dry-run` checks again"
        raise DataError(error.what, fix=fix) from None


def check_paths(source: Source) -> None:
    """Check that the files exist and are each named once.

    Raises:
        DataError: If not; says how to get them.
    """
    for path in paths_of(source):
        if source.data.count(str(path)) > 1:
            raise DataError(f"{path} is named twice", fix="name it once")
        if not path.exists():
            raise DataError(
                f"cannot read {path}: there is no such file",
                fix=f"{source.data_from}; or name what you have with --data PATH",
            )


def _check_scored(scorer: ScorerName, sample: Sample, known: set[frozenset[tuple[str, type, bool]]]) -> None:
    """Check that a scorer finds what it splits scores by; otherwise it would only fail after all rollouts.

    Custom scorers are not tried, as they may need more than one mark.

    Args:
        scorer: The suite's scorer.
        sample: A question.
        known: The shapes of `extra` already checked; others of the same shape are not checked again.

    Raises:
        Unfit: If the sample lacks something.
    """
    has = frozenset((key, type(value), bool(value)) for key, value in sample.extra.items())
    if scorer in OURS[SCORERS.kind] and has not in known:
        try:
            SCORERS[scorer]([Mark(sample.id, sample.extra, 0.0, True, sample.source)])
        except DataError as error:
            raise unfit(error) from None
        known.add(has)


def _check_positions(source: Source, truths: Counter[str]) -> None:
    """Check that position alone does not give the answers away.

    Raises:
        DataError: If the same letter is right in all questions, although they are not shuffled.
    """
    letter, count = truths.most_common(1)[0]
    ordered = source.choices is not None and source.choices.order == OFFICIAL
    if ordered and letter and len(truths) == 1 and count >= SUSPICIOUS:
        raise DataError(
            f"the right option is {letter} in all of {count} questions",
            where=", ".join(source.data),
            fix="get the file with the official order (V*: test_questions.jsonl), or shuffle by a seed: "
            "--set choices.order=0",
        )
