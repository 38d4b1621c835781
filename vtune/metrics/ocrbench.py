"""The OCRBench v2 scores: eight categories in English and five in Chinese."""

from collections.abc import Sequence
from statistics import fmean

from vtune.metrics.benchmarks import SCORERS, Mark, Scores, extra_of, mean

LANGUAGES = ("en", "cn")


def ocrbench(marks: Sequence[Mark]) -> Scores:
    """`en` and `cn`, the means of their categories' means, whatever their sizes; `score` is the mean of both.

    `categories` has each. A category that waits for an official scorer, or of which nothing was scored, has
    no mean, and then neither has anything that includes it. Upstream prints `en` and `cn`; their mean is
    ours.

    Source: `get_score.py` of OCRBench v2, and VLMEvalKit.

    Raises:
        DataError: If a sample has no category.
    """
    return _scores(marks, weighted=False)


def ocrbench_weighted(marks: Sequence[Mark]) -> Scores:
    """The same categories; `en`, `cn` and `score` are means over questions that were scored.

    Source: `ocrbench_v2` of lmms-eval, as V-Triune reports it.

    Raises:
        DataError: If a sample has no category.
    """
    return _scores(marks, weighted=True)


def _scores(marks: Sequence[Mark], *, weighted: bool) -> Scores:
    names = sorted({extra_of(mark, "category") for mark in marks})
    groups = {
        name: mean_once_scored([mark for mark in marks if mark.extra["category"] == name]) for name in names
    }
    found = mean_once_scored(marks)
    parts = {
        language: [group for name, group in groups.items() if name.endswith(f"_{language}")]
        for language in LANGUAGES
    }
    asked = {language: inside for language, inside in parts.items() if inside}
    for language, inside in asked.items():
        if all("score" in group for group in inside):
            sizes = [group["n"] - group["unscored"] if weighted else 1 for group in inside]
            found[language] = fmean([group["score"] for group in inside], sizes)
    if not weighted and asked:
        found.pop("score", None)
        found.pop("intervals", None)  # that of the plain mean
        if all(language in found for language in asked):
            found["score"] = fmean(found[language] for language in asked)
    return found | {"categories": groups}


def mean_once_scored(marks: Sequence[Mark]) -> Scores:
    """`mean`, without a score while any reply waits for its scorer: the rest are not a fair sample."""
    found = mean(marks)
    if any(mark.waits for mark in marks):
        found.pop("score", None)
        found.pop("intervals", None)
    return found


SCORERS.add("ocrbench_v2", ocrbench)
SCORERS.add("ocrbench_v2_weighted", ocrbench_weighted)
