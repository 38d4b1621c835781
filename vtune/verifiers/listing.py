"""Whether verifiers reward a reply that lists answers instead of giving one."""

import json
from collections.abc import Sequence

from vtune.schema.sample import Sample
from vtune.verifiers import scored_elsewhere, verdict_on, verifier_of
from vtune.verifiers.perfect import ROUNDING, written
from vtune.verifiers.verifier import Undecided

LISTED = 32
"""Limit on the distinct ground truths of a group whose answers are listed; ours."""
LEAST = 3
"""Fewest distinct answers that make a list: two may both be right, like 12 and 12.0."""
EMPTY = ("[]", "{}")
"""Answers that name nothing: everything that they contain is right, which is perfect precision."""
GROUPS = 64
"""Limit on the groups of a source; ours: a user's verifier may have different options in each row."""


class Lists:
    """Whether one reply, a list of all answers or an empty one, is right for many questions; fed row by row.

    Benchmark scorers often look for the truth anywhere in the reply, which only a model trained on
    them exploits. A policy that is trained on them learns to list everything.

    Checked per group of rows that are judged alike: same source, same verifier and same options.
    Numbers and lists among the options (sizes of pictures, aliases) are specific to a row, and do not
    separate groups.
    """

    def __init__(self) -> None:
        self._sources: dict[str, dict[tuple[str, str], dict[str, Sample]]] = {}

    def see(self, sample: Sample) -> None:
        """Add the next row."""
        groups = self._sources.setdefault(sample.source, {})
        alike = sample.verifier, _options(sample)
        if alike in groups or len(groups) < GROUPS:
            group = groups.setdefault(alike, {})
            if len(group) < LISTED:
                group.setdefault(sample.ground_truth, sample)

    def paid(self) -> list[tuple[str, str]]:
        """(source, verifier) of the groups in which such a reply is right. Main thread only (`math`).

        Without the groups for which this cannot be determined: their answers are boxes, too few, or judged by
        a model, the environment or an official scorer.

        Raises:
            DataError: If a ground truth cannot be read.
        """
        found = [
            (source, verifier)
            for source, groups in self._sources.items()
            for (verifier, _), group in groups.items()
            if _pays([*group.values()])
        ]
        return list(dict.fromkeys(found))


def _options(sample: Sample) -> str:
    told = {key: value for key, value in sample.verifier_parm.items() if isinstance(value, str | bool | dict)}
    return json.dumps(told, sort_keys=True)


def _pays(group: Sequence[Sample]) -> bool:
    if len(group) < LEAST or not all(map(_tells, group)):
        return False
    listed = " or ".join(dict.fromkeys(map(_right, group)))
    try:
        found = any(all(_is_right(reply, one) for one in group) for reply in (listed, *EMPTY))
        return found and _differ(group)
    except Undecided:
        return False


def _differ(group: Sequence[Sample]) -> bool:
    """Whether enough answers are distinct: 0.5 and 1/2, each right where the other is, count as one."""
    apart: list[Sample] = []
    for one in group:
        if not any(_is_right(_right(one), other) and _is_right(_right(other), one) for other in apart):
            apart.append(one)
        if len(apart) == LEAST:
            return True
    return False


def _right(sample: Sample) -> str:
    return verifier_of(sample).right(sample)


def _is_right(answer: str, sample: Sample) -> bool:
    return verdict_on(written(answer, sample), sample).score >= 1.0 - ROUNDING


def _tells(sample: Sample) -> bool:
    verifier = verifier_of(sample)
    by_others = verifier.asks_judge or verifier.reads_outcome or scored_elsewhere(sample)
    return not (by_others or verifier.answers_in_boxes)
