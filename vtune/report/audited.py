"""What `vtune faithfulness` found in run and evaluation folders, beside their own numbers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from vtune.errors import DataError
from vtune.report.calibration import calibration_notes, calibration_table
from vtune.report.counterfactual import render_counterfactual
from vtune.report.faithfulness import calls_table, kept_rows, looks_table, people_notes, verdict
from vtune.report.tabular import LOOKS
from vtune.schema.audit import NAME


def render_audits(shown: Sequence[Mapping[str, Any]]) -> Iterator[RenderableType]:
    """Tables of looks, calls, judges and regenerated answers, folder by folder.

    Args:
        shown: Runs and evaluations with their `path`; those without `audit` have no tables.

    Raises:
        DataError: If the stored file is not an audit.
    """
    for one in shown:
        if "audit" not in one:
            continue
        yield Text(f"{one['name']}: what `vtune faithfulness` has found")
        try:
            yield from _tables(one["audit"])
        except (KeyError, TypeError, AttributeError) as error:
            raise damaged(f"{one['path']}/{NAME}", error) from None


def with_shares(evaluation: Mapping[str, Any]) -> Mapping[str, Any]:
    """An evaluation with the looks of its last audit in place of its own.

    Returns:
        The evaluation. With an audit, `faithfulness` and `judged_by` come from the audit, `looks_by` says who
        judged, and `looks` has the numbers of each audited source.

    Raises:
        DataError: If the stored file is not an audit.
    """
    audit = evaluation.get("audit") or {}
    if "all" not in audit:
        return evaluation
    try:
        looks = {name: _numbers(found) for name, found in audit["sources"].items()}
        judged = {"judged_by": audit["judged_by"], "looks_by": str(audit["note"])}
        return {**evaluation, "faithfulness": _numbers(audit["all"]), "looks": looks, **judged}
    except (KeyError, TypeError, AttributeError) as error:
        raise damaged(f"{evaluation['path']}/{NAME}", error) from None


def _numbers(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """The numbers of an audit; numbers other than `n` and `accuracy` are None if the audit predates them."""
    lacking = {column.name: None for column in LOOKS}
    return {**lacking, **found, "n": found["n"], "accuracy": found["accuracy"]}


def calls_notes(audit: Mapping[str, Any]) -> list[str]:
    """Who judged the calls, and why there are no shares of looks; older audits lack these notes."""
    return [f"calls: {audit[name]}" for name in ("note", "no_shares") if audit.get(name)]


def damaged(where: str, error: Exception) -> DataError:
    """The error for a file that is not an audit."""
    return DataError(
        f"not what an audit has found: {error!r}",
        where=where,
        fix="remove it: `vtune faithfulness` writes it again",
    )


def _tables(audit: Mapping[str, Any]) -> Iterator[RenderableType]:
    if "all" in audit:  # older audits store only calls
        yield Text(verdict(audit))
        yield looks_table("looks (in percent [95 % interval])", kept_rows(audit))
    if "calls" in audit:
        yield calls_table(audit["calls"])
        yield from map(Text, calls_notes(audit))
    if "judges" in audit:
        yield calibration_table(audit["judges"])
        yield from map(Text, calibration_notes(audit["judges"]))
    if "people" in audit:
        yield from map(Text, people_notes(audit["people"]))
    if "counterfactual" in audit:
        yield render_counterfactual(audit["counterfactual"])
