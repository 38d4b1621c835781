"""Scorer for benchmarks whose authors break the score down in several ways at once."""

from collections.abc import Mapping, Sequence

from vtune.errors import DataError
from vtune.metrics.benchmarks import SCORERS, Mark, Scores, mean


def by_facets(marks: Sequence[Mark]) -> Scores:
    """`mean` over all, and `facets`: the same for each value of each facet; a question may have several.

    Source: `calculate_score.py` of MathVista (nine facets, `skills` a list), the versions, subjects and
    subfields of MathVerse, the subjects and levels of MathVision, the categories of CharXiv.

    Raises:
        DataError: If a sample has no facets.
    """
    groups: dict[str, dict[str, list[Mark]]] = {}
    for mark in marks:
        facets = mark.extra.get("facets")
        if not isinstance(facets, Mapping) or not facets:
            raise DataError(
                "it has no `facets`, which the score is split by",
                where=f"sample {mark.sample_id!r}",
                fix="fill in `extra_info.facets`, or score with `scorer: mean`",
            )
        for name, value in facets.items():
            for one in value if isinstance(value, list | tuple) else [value]:
                groups.setdefault(name, {}).setdefault(str(one), []).append(mark)
    return mean(marks) | {
        "facets": {
            name: {value: mean(inside) for value, inside in sorted(values.items())}
            for name, values in sorted(groups.items())
        }
    }


SCORERS.add("facets", by_facets)
