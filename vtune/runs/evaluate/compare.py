"""`vtune compare`: two evaluations on the same questions."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import isclose
from pathlib import Path
from statistics import fmean
from typing import Any

from vtune.differences import differing_keys
from vtune.errors import DataError, RecipeError
from vtune.metrics.items import Item
from vtune.metrics.paired import LEVEL, Pair, Paired, holm, paired
from vtune.metrics.power import FEWEST
from vtune.metrics.scored import NEAR, is_mean, number_at
from vtune.runs.evaluate.causes import within
from vtune.runs.evaluate.finished import read_results
from vtune.runs.evaluate.identity import suite_as_today
from vtune.runs.evaluate.items import read_items
from vtune.runs.folder import MAY_CHANGE
from vtune.runs.moved import by_content

RULES = (
    "format",
    "kind",
    "protocol",
    "scorer",
    "answer_in",
    "answer_default",
    "reply_space",
    "choices.answer_in",
    "choices.letter_rule",
    "reward.iou",
    "reward.judge",
)
"""Keys of a suite that define a right answer: scores that differ in these cannot be compared."""

PATHS = ("data", "data_from", "reward.judge.api_key_env")
"""Keys that say where things are, not what they are; data are compared by content."""

LEFT_OUT = "; the interval, an approximation, excludes 0, but the test decides"

LISTED = 20
"""Maximum number of ids listed per evaluation for questions that only it has."""


def run_compare(a: Path, b: Path) -> dict[str, Any]:
    """Compare B with A, question by question.

    Questions are matched by id. A question that one evaluation lacks, or has no scored rollout for, is left
    out of both and counted. All questions have equal weight, whatever the suite's scorer does.

    Args:
        a: Folder of a finished `vtune eval`.
        b: Another one, on the same data.

    Returns:
        `a` and `b`: `name`, `path`, `model`, `rollouts` per question; `differs`: what differs besides the
        model; `items`: numbers of questions that `both` have scored, `only_a`, `only_b` (and some of their
        ids) and `unscored`; `overall`: see `vtune.metrics.paired`, and `verdict` in words, None if nothing
        can be compared; `categories` and `sources`, if there are several: the same for each, with `p_holm`,
        the p-value adjusted for all of them, on which their verdicts are based; `note`; `scored_by`: if the
        suite's score is not the mean compared here, the `scorer`, its scores of `a` and `b`, and whether they
        are means `over_answers`, else None.

    Raises:
        DataError: If a folder is not a finished evaluation, or the data differ.
        RecipeError: If the rules for scoring answers differ.
    """
    results = [read_results(folder) for folder in (a, b)]
    differs = _differences(*results)
    first, second = read_items(a), read_items(b)
    common = [name for name in first if name in second]
    scored = [name for name in common if None not in (first[name].score, second[name].score)]
    ids = {
        "only_a": [name for name in first if name not in second],
        "only_b": [name for name in second if name not in first],
    }
    pairs = {name: _pair(first[name], second[name]) for name in scored}
    found = paired(list(pairs.values())) if pairs else None
    categories = {name: first[name].category for name in scored}
    sources = {name: first[name].source for name in scored}
    parts = {
        # If each source is a category, its parts would be tested, and adjusted for, twice.
        "categories": {} if _same_parts(categories, sources) else _parts(pairs, categories),
        "sources": _parts(pairs, sources),
    }
    return {
        "a": _about(a, results[0], first),
        "b": _about(b, results[1], second),
        "differs": differs,
        "items": {
            "both": len(scored),
            "unscored": len(common) - len(scored),
            **{side: len(names) for side, names in ids.items()},
            **{f"{side}_ids": names[:LISTED] for side, names in ids.items() if names},
        },
        "overall": asdict(found) | {"verdict": verdict(found, found.p)} if found else None,
        **_adjusted(parts),
        "note": _note(len(scored), sum(map(len, parts.values()))),
        "scored_by": _scored_by(results, (first, second)),
    }


def verdict(found: Paired, p: float) -> str:
    """The result in words.

    Args:
        found: The comparison.
        p: P-value of its test, adjusted for other tests.
    """
    points = 100 * found.difference.value
    if p < LEVEL and points:
        return f"{'B' if points > 0 else 'A'} is better, by {abs(points):.1f} points"
    low, high = found.difference.low, found.difference.high
    aside = found.p >= LEVEL and low is not None and high is not None and (low > 0 or high < 0)
    return f"no difference could be shown; {_sought(found)}{LEFT_OUT if aside else ''}"


def _sought(found: Paired) -> str:
    """What the test can detect, in words."""
    if found.clusters < FEWEST:
        return f"the test needs at least {FEWEST} independent questions, and has {found.clusters}"
    exact = found.test == "exact McNemar"
    if found.detectable is None and not exact and 0 < found.differing < FEWEST:
        return "too few independent questions differ to estimate the smallest detectable difference"
    if found.detectable is None:
        return "there are too few questions to show one of any size"
    about = "" if exact else "about "
    return f"these questions can detect one of {about}{100 * found.detectable:.1f} points with 80 % power"


def _scored_by(
    results: Sequence[Mapping[str, Any]], items: Sequence[Mapping[str, Item]]
) -> dict[str, Any] | None:
    """The suite's scorer, both scores, and whether they are means over answers; None if the scores are what
    is compared here (with missing rollouts, the mean over questions differs from the score).
    """
    scores = [number_at(one, "score", "score") for one in results]
    over_answers = all(map(is_mean, results))
    if over_answers and all(map(_is_over_questions, scores, items)):
        return None
    by = results[0]["suite"].get("scorer")
    return {"scorer": by, "a": scores[0], "b": scores[1], "over_answers": over_answers}


def _is_over_questions(score: float | None, items: Mapping[str, Item]) -> bool:
    known = [item.score for item in items.values() if item.score is not None]
    return score is None or not known or isclose(score, fmean(known), abs_tol=NEAR)


def _note(count: int, parts: int) -> str:
    if not count:
        return "no question was scored in both: there is nothing to compare"
    if not parts:
        return ""
    return (
        f"{parts} parts were compared as well: their p-values and verdicts are corrected for that many tests "
        "(Holm)"
    )


def _differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """What differs besides the model.

    Raises:
        DataError: If the data differ.
        RecipeError: If the definition of a right answer differs.
    """
    prints = [sorted(map(str, one["environment"]["data"].values())) for one in (a, b)]
    if prints[0] != prints[1]:
        raise DataError(
            "the two evaluations are not on the same data: the SHA-256 of `data` differ",
            where=" and ".join(", ".join(one["environment"]["data"]) or "no data" for one in (a, b)),
            fix="evaluate both models on the same files",
        )
    keys = [
        key
        for key in differing_keys(
            suite_as_today(a["suite"], b["suite"]), suite_as_today(b["suite"], a["suite"])
        )
        if key not in MAY_CHANGE and not within(key, PATHS)
    ]
    asked = [one.get("grader", {}) for one in (a, b)]
    judges = [key for key in ("model", "prompts") if asked[0].get(key) != asked[1].get(key)]
    if rules := [*(key for key in keys if within(key, RULES)), *(f"grader.{key}" for key in judges)]:
        # Using the other's suite.yaml would remove a difference between agents.
        agents = "; for what tools add, give both the agent that has them, and one --set 'offers=[]'"
        raise RecipeError(
            f"answers were scored by different rules: the suites differ in {', '.join(rules)}",
            fix="evaluate one of the two again with the other's suite.yaml; `vtune eval --out A --against B` "
            f"says what the rules alone come to{agents if 'answer_in' in rules else ''}",
        )
    indexes = [one["environment"].get("indexes", {}) for one in (a, b)]
    return [
        *by_content(keys, *indexes),
        *(key for key in ("engine", "limit") if a.get(key) != b.get(key)),
        *(["uses"] if a["environment"].get("uses") != b["environment"].get("uses") else []),
    ]


def _about(folder: Path, results: Mapping[str, Any], items: Mapping[str, Item]) -> dict[str, Any]:
    return {
        "name": folder.resolve().name,
        "path": str(folder),
        "model": results["model"],
        "rollouts": max((len(item.scores) for item in items.values()), default=0),
    }


def _pair(a: Item, b: Item) -> Pair:
    assert a.score is not None
    assert b.score is not None
    return Pair(a.cluster, a.score, b.score)


def _parts(pairs: Mapping[str, Pair], part_of: Mapping[str, str | None]) -> dict[str, Paired]:
    """The comparison for each part; empty if there are no parts, or only one."""
    names = sorted({part for part in part_of.values() if part is not None})
    if len(names) < 2:
        return {}
    return {part: paired([pairs[name] for name, of in part_of.items() if of == part]) for part in names}


def _same_parts(one: Mapping[str, str | None], other: Mapping[str, str | None]) -> bool:
    """Whether two partitions of the questions are the same, whatever their parts are called."""
    both = {(part, other[name]) for name, part in one.items()}
    return len(both) == len({part for part, _ in both}) == len({part for _, part in both})


def _adjusted(parts: Mapping[str, Mapping[str, Paired]]) -> dict[str, dict[str, Any]]:
    """Kind of part -> part -> its comparison, with a p-value adjusted for those of all kinds."""
    every = {f"{kind} {name}": one.p for kind, of in parts.items() for name, one in of.items()}
    p = holm(every)
    return {
        kind: {
            name: asdict(one) | {"p_holm": p[f"{kind} {name}"], "verdict": verdict(one, p[f"{kind} {name}"])}
            for name, one in of.items()
        }
        for kind, of in parts.items()
    }
