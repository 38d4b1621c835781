"""What a scorer promises."""

import copy
import time
from collections.abc import Callable, Sequence

from vtune.metrics.benchmarks import SCORERS, Mark
from vtune.metrics.scored import raw_scores, scored_by
from vtune.runs.parts.checks.check import Broken, Check, in_time, tried
from vtune.schema.annotated import AnnotatedPicture, Annotation, to_extra
from vtune.verifiers.boxes import LabelledBox

BOX = LabelledBox("cup", (10.0, 10.0, 60.0, 60.0))
MANY = 1000
"""Rollouts that are scored to measure the time."""
SLOWEST_SCORE = 10.0
"""Seconds for all of them at most, ours."""
KNOWN = "take the mean over those marks whose `score` is not None; where there are none, leave `score` out"


def picture(number: int) -> AnnotatedPicture:
    """A picture of one cup, as needed by scorers that work on whole sets."""
    cup = Annotation(number + 1, 1, (10.0, 10.0, 50.0, 50.0), 2500.0, crowd=False)
    return AnnotatedPicture(number, 100, 100, "check", {"cup": 1}, (cup,))


def marks_of(scores: Sequence[float | None]) -> list[Mark]:
    """Rollouts of different questions, each with a score or unscored."""
    extra = {
        "category": "single",
        "cycle_category": "0",
        "l2-category": "one",
        "task": "one",
        "facets": {"kind": "one"},
    }
    return [
        Mark(f"check/{n}", extra | to_extra(picture(n)), score, False, "check", "", (BOX,) if score else ())
        for n, score in enumerate(scores)
    ]


def check_scorer(name: str) -> list[Check]:
    """Right is 1, wrong is 0, unscored is left out; the order does not matter; the result can be written."""

    def score(scores: Sequence[float | None]) -> object:
        return raw_scores(name, marks_of(scores)).get("score")

    def gives(scores: Sequence[float | None], wanted: float | None, fix: str) -> Callable[[], str]:
        def run() -> str:
            found = score(scores)
            if found != wanted:
                raise Broken(f"`score` is {found}, not {wanted}", fix)
            return f"`score` is {found}"

        return run

    def ordered() -> str:
        first, other = score((1.0, 0.0, 0.0, 0.0)), score((0.0, 0.0, 0.0, 1.0))
        if not isinstance(first, float) or not 0.0 <= first <= 1.0:
            raise Broken(f"`score` is {first!r} where one of four is right", "give a number in [0, 1]")
        if first != other:
            raise Broken(
                f"`score` is {first} or {other}, depending on the order of the marks", "weigh all marks alike"
            )
        return f"{first:g} for one of four"

    def again() -> str:
        marks = marks_of((1.0, 0.0, None))
        before = copy.deepcopy(marks)
        first = SCORERS[name](marks)
        if marks != before:
            raise Broken("the scorer changed the marks, or their order", "copy what you change")
        if SCORERS[name](marks) != first:
            raise Broken(
                "the same marks give different results", "the result must not depend on chance or state"
            )
        return "twice, and the marks stay as they are"

    def written() -> str:
        found = [scored_by(name, marks_of(scores)) for scores in ((1.0, 0.0, None), (1.0, 0.0), (None,))]
        return f"{len(found[0])} values"

    def fast() -> str:
        marks = marks_of([float(n % 2) for n in range(MANY)])
        began = time.process_time()
        SCORERS[name](marks)
        return in_time(
            time.process_time() - began, SLOWEST_SCORE, f"{MANY} rollouts", "go through the marks once"
        )

    return [
        tried("all right is 1", gives((1.0,) * 4, 1.0, "give `score` as a share of what is right")),
        tried("all wrong is 0", gives((0.0,) * 4, 0.0, "give `score` as a share of what is right")),
        tried("what is unscored has no score", gives((None,) * 4, None, KNOWN)),
        tried("unscored marks do not lower the score", gives((1.0, 1.0, 1.0, None), 1.0, KNOWN)),
        tried("the order changes nothing", ordered),
        tried("the same marks give the same", again),
        tried("the result can be written as JSON", written),
        tried("fast enough", fast),
    ]
