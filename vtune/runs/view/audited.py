"""What `vtune faithfulness` has found in the folder of a run, as tables of its page."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vtune.errors import DataError
from vtune.report.calibration import calibration_notes
from vtune.report.counterfactual import CELLS, COLUMNS, share_text
from vtune.report.values import cell
from vtune.schema.audit import NAME, read_audit

JUDGED = ("n", "agree", "kappa", "both", "first_only", "second_only", "neither")
"""Numbers of an agreement that have a column."""
HEADS = ("n", "agree", "kappa", "yes, yes", "yes, no", "no, yes", "no, no")


def audited_tables(folder: Path) -> Iterator[dict[str, Any]]:
    """Right answers with other pictures, the judge against the exchange, and judges against boxes.

    Raises:
        DataError: If what was kept cannot be read.
    """
    audit = read_audit(folder)
    try:
        if "counterfactual" in audit:
            yield from _counterfactual(audit["counterfactual"])
        if "judges" in audit:
            yield _judges(audit["judges"])
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"not what an audit has found: {error!r}",
            where=str(folder / NAME),
            fix="remove it: `vtune faithfulness` writes it again",
        ) from None


def _counterfactual(found: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    exchanges = found["exchanges"]
    rows = [
        [name, cell(one["n"]), *(_percent(one[key]) for key, _ in COLUMNS)] for name, one in exchanges.items()
    ]
    unknown = "; ".join(
        f"{name}: {one['n_unscored']} not known, most often: {one['why']}"
        for name, one in exchanges.items()
        if one["n_unscored"]
    )
    heads = ["", "n", *(title.replace("\n", " ") for _, title in COLUMNS)]
    title = f"right answers with other pictures, in percent, drawn with {found['model']}"
    yield {"title": title, "note": unknown, "head": heads, "rows": rows}
    rows = [
        [name, cell(one["agreement"]["n"]), *(_percent(one["table"][key]) for key, _ in CELLS)]
        for name, one in exchanges.items()
    ]
    heads = ["", "n", *(title.replace("\n", " ") for _, title in CELLS)]
    title = "the judge's verdict and the exchange's, in percent of right answers with a look"
    yield {"title": title, "note": "", "head": heads, "rows": rows}


def _judges(judges: Mapping[str, Any]) -> dict[str, Any]:
    rows = [[name, *(cell(one["agreement"][key]) for key in JUDGED)] for name, one in judges.items()]
    return {
        "title": "judges of looks against boxes",
        "note": "; ".join(calibration_notes(judges)),
        "head": ["", *HEADS],
        "rows": rows,
    }


def _percent(estimate: Mapping[str, Any] | None) -> str:
    return share_text(estimate).replace("\n", " ")
