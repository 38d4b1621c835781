"""Scores of benchmarks that let a model pass: unattempted questions are counted separately."""

from collections.abc import Sequence

from vtune.metrics.benchmarks import SCORERS, Mark, Scores, mean


def attempted(marks: Sequence[Mark]) -> Scores:
    """`mean` over all; `given_attempted`, over attempted questions only; `f1`, their harmonic mean.

    `not_attempted` counts the others. An unreadable reply counts as not attempted.

    Source: SimpleQA, as SimpleVQA (`f1`) and LiveVQA (`given_attempted` and `score`) report it.
    """
    found = mean(marks)
    known = [mark for mark in marks if mark.score is not None]
    tried = [mark for mark in known if mark.attempted and not mark.unreadable]
    found["not_attempted"] = len(known) - len(tried)
    if tried:
        right = sum(mark.score or 0.0 for mark in tried)
        given = right / len(tried)
        found["given_attempted"] = given
        score = right / len(known)
        found["f1"] = 2 * given * score / (given + score) if right else 0.0
    return found


SCORERS.add("attempted", attempted)
