"""What `vtune faithfulness` found in a run's folder, as tables for its page."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vtune.metrics.counterfactual import SHOWN
from vtune.report.audited import calls_notes, damaged
from vtune.report.calibration import calibration_notes
from vtune.report.counterfactual import CELLS, COLUMNS, agreement_note, share_text, splits
from vtune.report.faithfulness import CALLS, kept_rows, people_notes, shown, verdict
from vtune.report.numbers import GAP, percent
from vtune.report.tabular import LOOKS
from vtune.report.values import cell
from vtune.schema.audit import NAME, read_audit

JUDGED = ("n", "agree", "kappa", "both", "first_only", "second_only", "neither")
"""Numbers of an agreement that get a column."""
HEADS = ("n", "agree", "kappa", "yes, yes", "yes, no", "no, yes", "no, no")

DEPENDENT = "right and dependent, of all"
"""Prefix of a headline for answers that change with the pictures; the exchange's name follows."""

Table = dict[str, Any]


def audited_tables(folder: Path) -> Iterator[Table]:
    """What calls showed and what they were worth, right answers with other pictures, the judge compared with
    the exchange, judges with boxes, the shares that a perfect judge would have found, and people's verdicts
    on verifiers.

    Raises:
        DataError: If the stored audit cannot be read.
    """
    audit = read_audit(folder)
    try:
        if "all" in audit:
            yield _looks(audit)
        if "calls" in audit:
            yield _calls(audit["calls"]) | {"note": "; ".join(calls_notes(audit))}
        if "counterfactual" in audit:
            yield from _counterfactual(audit["counterfactual"])
        if "judges" in audit:
            yield _judges(audit["judges"])
            yield _corrected(audit["judges"])
        if "people" in audit:
            yield _people(audit["people"])
    except (KeyError, TypeError, AttributeError) as error:
        raise damaged(str(folder / NAME), error) from None


def dependent_shares(folder: Path) -> dict[str, Mapping[str, Any]]:
    """Name of a headline -> share of all answers that are right, but no longer right with other pictures.

    One entry for each exchange of the pictures that calls showed; empty if no answer was regenerated.

    Raises:
        DataError: If the stored audit cannot be read.
    """
    exchanges = read_audit(folder).get("counterfactual", {}).get("exchanges", {})
    try:
        return {
            f"{DEPENDENT} ({name})": share
            for name, found in exchanges.items()
            if name != SHOWN and (share := found["dependent_of_all"]) is not None
        }
    except (KeyError, TypeError) as error:
        raise damaged(str(folder / NAME), error) from None


def _looks(audit: Mapping[str, Any]) -> Table:
    rows = [
        [name, cell(numbers["n"]), *(shown(numbers.get(one.name), one).replace("\n", " ") for one in LOOKS)]
        for name, numbers in kept_rows(audit)
    ]
    heads = ["", "n", *(one.title for one in LOOKS)]
    title = "looks, in percent [95 % interval]"
    return {"title": title, "note": f"{verdict(audit)}; {audit['note']}", "head": heads, "rows": rows}


def _calls(calls: Mapping[str, Any]) -> Table:
    rows = [
        [
            name,
            cell(found["n"]),
            cell(found["calls"]),
            *(_percent(found.get(key)) for key, _ in CALLS),
            cell(found["first_useful"]),
        ]
        for name, found in calls.items()
    ]
    titles = (title.replace("-\n", "-").replace("\n", " ") for _, title in CALLS)
    heads = ["of", "trajectories with calls", "calls", *titles, "first useful"]
    return {"title": "calls, in percent [95 % interval]", "note": "", "head": heads, "rows": rows}


def _counterfactual(found: Mapping[str, Any]) -> Iterator[Table]:
    exchanges = found["exchanges"]
    rows = [
        [name, cell(one["n"]), *(_percent(one[key]) for key, _ in COLUMNS)] for name, one in exchanges.items()
    ]
    unknown = "; ".join(
        f"{name}: {one['n_unscored']} not known, most often: {one['why']}"
        for name, one in exchanges.items()
        if one["n_unscored"]
    )
    if found.get("drawn_by"):
        unknown = "; ".join(
            filter(None, (f"the evaluation names another model, {found['drawn_by']}", unknown))
        )
    heads = ["", "n", *(title.replace("\n", " ") for _, title in COLUMNS)]
    title = f"right answers with other pictures, in percent, generated with {found['model']}"
    yield {"title": title, "note": unknown, "head": heads, "rows": rows}
    rows = [
        [name, cell(one["agreement"]["n"]), *(_percent(one["table"][key]) for key, _ in CELLS)]
        for name, one in exchanges.items()
    ]
    heads = ["", "n", *(title.replace("\n", " ") for _, title in CELLS)]
    title = "the judge's verdict and the exchange's, in percent of right answers with a look"
    agree = "; ".join(
        note for name, one in exchanges.items() for note in agreement_note(name, one["agreement"])
    )
    yield {"title": title, "note": agree, "head": heads, "rows": rows}
    for kind, values, parts in splits(exchanges):
        rows = [[text.replace("\n", " ") for text in row] for row in parts]
        yield {"title": f"dependent, in percent, by {kind}", "note": "", "head": ["", *values], "rows": rows}


def _judges(judges: Mapping[str, Any]) -> Table:
    rows = []
    for name, one in judges.items():
        parts = {name: one["agreement"]}
        if len(one["by_size"]) > 1:
            parts |= {f"{name}, target {size}": part for size, part in one["by_size"].items()}
        rows += [[title, *(cell(part[key]) for key in JUDGED)] for title, part in parts.items()]
    return {
        "title": "judges of looks against boxes",
        "note": "; ".join(calibration_notes(judges)),
        "head": ["", *HEADS],
        "rows": rows,
    }


def _corrected(judges: Mapping[str, Any]) -> Table:
    """What each judge finds faithful, and what a perfect judge would have found."""
    rows = []
    for name, one in judges.items():
        found = one["corrected"]
        shares = [GAP, GAP] if found is None else [percent(found["apparent"]), _percent(found["share"])]
        rows.append(
            [name, cell(one["n"]), *shares, _percent(one["sensitivity"]), _percent(one["specificity"])]
        )
    return {
        "title": "faithful of right answers with calls, in percent: as judged, and as a perfect judge would",
        "note": "; ".join(f"{name}: {one['warning']}" for name, one in judges.items() if one["warning"]),
        "head": ["looks by", "n", "as judged", "corrected", "sensitivity", "specificity"],
        "rows": rows,
    }


def _people(people: Mapping[str, Any]) -> Table:
    rows = [
        [name, *(cell(found[key]) for key in ("n", "agree", "kappa", "first_only", "second_only"))]
        for name, found in people["answers"].items()
    ]
    return {
        "title": "labels of people against verifiers",
        "note": "; ".join(people_notes(people)),
        "head": ["verifier", "n", "agree", "kappa", "wrongly right", "wrongly wrong"],
        "rows": rows,
    }


def _percent(estimate: Mapping[str, Any] | None) -> str:
    return share_text(estimate).replace("\n", " ")
