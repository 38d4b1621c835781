"""Verdicts on regenerated answers, by whatever judged the originals."""

import asyncio
from dataclasses import dataclass

from vtune.environments import DEFAULT, name_of
from vtune.errors import DataError, RecipeError
from vtune.protocols.protocol import Rule
from vtune.reward.part import Unscored
from vtune.reward.score import Scorer
from vtune.runs.audit.located import Audited
from vtune.runs.evaluate.grading import grade_of, rule_of, verdict_of
from vtune.schema.sample import Sample
from vtune.schema.trajectory import Trajectory
from vtune.schema.verdict import Verdict


@dataclass(frozen=True, slots=True)
class JudgedBy:
    """How answers are judged."""

    rule: Rule
    name: tuple[str, ...] = ()
    """The protocol and the kind of question if the rule grades; empty: the sample's verifier judges."""


def judged_by(audited: Audited) -> JudgedBy:
    """How the trajectories were judged.

    Raises:
        RecipeError: If a model judged by a protocol's rule, as it is not asked here.
    """
    source, rule = audited.source, rule_of(audited.source)
    if rule.by == "verifier":
        return JudgedBy(rule)
    if rule.asks_model and audited.has_grader:
        raise RecipeError(
            f"the answers were graded by a model, for the protocol {source.protocol}; answers that "
            "are generated again cannot be",
            where=audited.settings,
            fix="evaluate with a protocol that reads answers itself, e.g. `--protocol vtune`, or without a "
            "`grader`, and audit that folder",
        )
    return JudgedBy(rule, (source.protocol, source.kind or ""))


async def verdict_on(
    sample: Sample, conversation: Trajectory, judged: JudgedBy, scorer: Scorer
) -> Verdict | Unscored:
    """The verdict on the last turn of a conversation.

    Args:
        sample: As asked.
        conversation: Ends with the answer.
        judged: How the original answer was judged.
        scorer: An open scorer.
    """
    if judged.rule.by == "verifier" or name_of(sample) != DEFAULT:
        return await scorer.accuracy(sample, conversation)
    try:
        shown = await asyncio.to_thread(scorer.with_shown_size, sample, conversation)
        return verdict_of(grade_of(conversation.reply, shown, judged.rule))
    except DataError as error:
        return Unscored(error.what)
