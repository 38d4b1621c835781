"""Several evaluations as one exported table, a row for each."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard

from vtune.metrics.scored import is_own
from vtune.report.audited import with_shares
from vtune.report.evaluation import BY_BOXES, Evaluation, is_by_boxes
from vtune.report.tabular import COUNTS, LOOKS, Column, Row, as_csv, as_latex
from vtune.report.values import is_estimate
from vtune.schema.source_names import ALL

SCORE = Column("score", "score")
COLUMNS = (SCORE, *LOOKS)
OF_LOOKS = "n_looks"
"""Number of answers behind all numbers except the score."""
UNSCORED = "unscored"
"""Number of answers without a score, which `n` and `clusters` leave out."""
LOOKS_BY = "looks_by"
"""Who judged the looks, if their shares come from an audit (`vtune faithfulness`)."""


def evaluations_csv(evaluations: Sequence[Evaluation]) -> str:
    """A line for each evaluation, each part of its score (categories), and each source if there are several.

    Numbers over several rollouts per question (`pass@k`), if any, come last; before the numbers comes the
    count of questions behind each that does not cover all (`n_pass@k`).
    """
    evaluations = list(map(with_shares, evaluations))
    several = dict.fromkeys(name for one in evaluations for name in _over_rollouts(one))
    columns = (*COLUMNS, *(Column(name, name) for name in several))
    fewer = dict.fromkeys(name for one in evaluations for name in _questions(one))
    audited = [LOOKS_BY] if any(LOOKS_BY in one for one in evaluations) else []
    counts = (*COUNTS, OF_LOOKS, UNSCORED, *audited, *fewer)
    return as_csv(_rows(evaluations, every=True), columns, "evaluation", counts)


def evaluations_latex(evaluations: Sequence[Evaluation]) -> str:
    """A `tabular` with a row for each evaluation; models and paths are comments."""
    evaluations = list(map(with_shares, evaluations))
    notes = [
        f"{one['name']}: {one['model']} on {one['samples']} samples ({one['path']})" for one in evaluations
    ]
    notes += [
        f"{one['name']}: looks as found by `vtune faithfulness`: {one[LOOKS_BY]}"
        for one in evaluations
        if LOOKS_BY in one
    ]
    notes += [BY_BOXES] if any(map(is_by_boxes, evaluations)) else []
    notes += [
        f"{one['name']}: only the score covers more than the {looks['n']} answers to questions "
        "that need a look"
        for one in evaluations
        if (looks := one["faithfulness"]).get("n") and looks["n"] != (_scored(one) or looks["n"])
    ]
    notes += [
        f"{one['name']}: {of - scored} of {of} answers had no score and are left out"
        for one in evaluations
        if (scored := _scored(one)) is not None and (of := one["score"]["n"]) > scored
    ]
    notes += [f"{one['name']}: {why}" for one in evaluations if (why := one["faithfulness"].get("no_shares"))]
    shares = all(_is_share(one) for one in evaluations)
    columns = (Column(SCORE.name, SCORE.title, percent=shares), *LOOKS)
    return as_latex(_rows(evaluations, every=False), columns, notes)


def _rows(evaluations: Sequence[Evaluation], *, every: bool) -> Iterator[Row]:
    for one in evaluations:
        looks = one["faithfulness"]
        # Counts of the score: the number of questions that need a look differs, and may be 0.
        counts = {"n": one["samples"], "clusters": None}
        counts |= {key: of[key] for of in (looks, one["score"]) for key in counts if _is_number(of.get(key))}
        if (scored := _scored(one)) is not None:
            counts["n"] = scored
        measured = {column.name: looks.get(column.name) for column in LOOKS}
        unscored = one["score"].get(UNSCORED)
        counts |= {OF_LOOKS: looks.get("n"), UNSCORED: unscored if _is_number(unscored) else None}
        counts |= {LOOKS_BY: one.get(LOOKS_BY)} | _questions(one)
        measured |= _over_rollouts(one) | {SCORE.name: _estimate(one["score"], SCORE.name)}
        yield one["name"], {**counts, **measured}
        own = [source for source in one["sources"] if source != ALL]
        own = own if every and len(own) > 1 else []
        by_source = {f"sources.{source}": source for source in own}
        for part, score in _parts(one["score"]) if every else ():
            if part in by_source:
                continue  # already in the source's line
            of_part = {key: score.get(key) for key in (*COUNTS, UNSCORED)} | {OF_LOOKS: None}
            of_part["n"] = _scored({**one, "score": score})
            yield f"{one['name']}: {part}", {**of_part, SCORE.name: _estimate(score, SCORE.name)}
        scores = dict(_parts(one["score"]))
        for place, source in by_source.items():
            numbers = one["sources"][source]
            known = {column.name: _estimate(numbers, column.name) for column in COLUMNS}
            looks = one.get("looks", {}).get(source)
            # Everything from the audit, including the accuracy, as shares must refer to the same answers.
            known |= {column.name: looks[column.name] for column in LOOKS} if looks else {}
            answers = numbers.get("trajectories")
            # For a source it is stored as a share.
            unscored = round(answers * numbers.get(UNSCORED, 0)) if answers is not None else None
            scored = answers - unscored if answers is not None and unscored else answers
            counts = {"n": scored, "clusters": None, OF_LOOKS: answers, UNSCORED: unscored}
            counts |= {OF_LOOKS: looks["n"], LOOKS_BY: one[LOOKS_BY]} if looks else {}
            if place in scores:
                known[SCORE.name] = _estimate(scores[place], SCORE.name)
            yield f"{one['name']}: {source}", {**counts, **known}


def _over_rollouts(evaluation: Evaluation) -> dict[str, Any]:
    """The numbers over several rollouts per question, by name."""
    found = evaluation.get("repeated") or {}
    return {name: value for name, value in found.items() if name != UNSCORED}


def _questions(evaluation: Evaluation) -> dict[str, int]:
    """The number of questions behind each number over rollouts, if that is not all."""
    found = _over_rollouts(evaluation).items()
    return {f"n_{name}": value["n"] for name, value in found if isinstance(value, Mapping) and "n" in value}


def _parts(score: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each part with its own score, by dotted name, e.g. categories of V*."""
    for name, part in score.items():
        if not isinstance(part, Mapping) or name == "intervals":
            continue
        if SCORE.name in part:
            yield f"{prefix}{name}", part
        yield from _parts(part, f"{prefix}{name}.")


def _scored(evaluation: Evaluation) -> int | float | None:
    """The number of answers behind a score; None if unknown."""
    count, unscored = (evaluation["score"].get(key) for key in ("n", UNSCORED))
    if not _is_number(count):
        return None
    # A custom scorer may already have left them out.
    left_out = isinstance(count, int) and isinstance(unscored, int) and not is_own(evaluation)
    return count - unscored if left_out else count


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _estimate(numbers: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """A number with its interval, if it has one."""
    found = numbers.get("intervals", {}).get(name, numbers.get(name))
    if isinstance(found, Mapping) and is_estimate(found):
        return found
    return {"value": found, "low": None, "high": None} if _is_number(found) else None


def _is_share(evaluation: Evaluation) -> bool:
    """Whether the score is a share in [0, 1]: some benchmarks count points."""
    score = _estimate(evaluation["score"], SCORE.name)
    return score is None or score["value"] is None or abs(score["value"]) <= 1
