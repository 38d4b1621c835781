"""Checks that rows have what a `pass_rate` filter needs, before any rollout is generated."""

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from vtune.curate.item import Item, concerns
from vtune.environments import DEFAULT, check_environment, name_of
from vtune.errors import DataError, RecipeError
from vtune.runs.agent.tools import check_tools
from vtune.runs.curate.recipe import PassRate
from vtune.schema.sample import Sample
from vtune.verifiers import VERIFIERS, check_ground_truth


class Needs(NamedTuple):
    """What a filter's rows need."""

    judge: bool = False
    """Whether a model compares the answers of any row."""
    sandbox: bool = False
    """Whether code may run for any row, by a tool or by a custom environment."""


def check_rows(spec: PassRate, items: Iterable[Item]) -> Needs:
    """Check, before any rollout is generated, that the filter has what its rows need: tools, a threshold, a
    judge, and options that their verifiers read. Main thread only (`math`).

    Raises:
        RecipeError: If something is missing, as the rollouts would be wasted.
        DataError: If a sample has no cached search.
    """
    checked: set[str] = set()
    compared, worlds = False, False
    for item in items:
        if not concerns(spec, item):
            continue
        worlds = worlds or name_of(item.sample) != DEFAULT
        if spec.tools is not None:
            check_tools([item.sample], spec.tools, spec.rollout.prompt)
        else:
            check_environment(item.sample)
        sample = with_parm(spec, item.sample)
        verifier = VERIFIERS.get(sample.verifier)
        if verifier is None:
            continue  # dropped later with that reason
        place = f"sample {sample.id!r}, source {item.source!r}"
        if verifier.reads_iou and sample.verifier_parm.get("iou") is None:
            raise RecipeError(
                f"pass_rate: verifier `{sample.verifier}` needs an IoU threshold for boxes",
                where=place,
                fix="set it in the filter, e.g. `verifier_parm: {iou: 0.5}`, or name other rows in `rows`",
            )
        if verifier.asks_judge and spec.judge is None:
            raise RecipeError(
                f"pass_rate: verifier `{sample.verifier}` needs a model to compare answers, but the "
                "filter names none",
                where=place,
                fix="set `judge` of the filter, or name other rows in `rows`",
            )
        compared = compared or verifier.asks_judge
        if sample.verifier not in checked and _takes_options(item.sample, sample, place):
            checked.add(sample.verifier)
    return Needs(judge=compared, sandbox=worlds or spec.tools is not None)


def _takes_options(own: Sample, sample: Sample, place: str) -> bool:
    """Whether a sample can be judged with the filter's options; False if it cannot without them either.

    Raises:
        RecipeError: If only the filter's options prevent it: they would cause all such rows to be dropped.
    """
    try:
        check_ground_truth(sample)
    except DataError as error:
        try:
            check_ground_truth(own)
        except DataError:
            return False  # dropped later with that reason
        raise RecipeError(
            f"pass_rate: with its verifier_parm, {error.what}",
            where=place,
            fix=f"{error.fix}; a filter of its own, by `rows`, can give other rows other options",
        ) from None
    return True


def with_parm(spec: PassRate, sample: Sample) -> Sample:
    """A sample whose verifier options are overridden by the filter's."""
    return replace(sample, verifier_parm={**sample.verifier_parm, **spec.verifier_parm})
