"""How far judges of looks can be trusted, as tables."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table

from vtune.report.numbers import GAP, percent

Result = Mapping[str, Any]
"""Name of a judge -> its `vtune.metrics.calibration.Calibration`, as a mapping."""


def calibration_table(judges: Result) -> Table:
    """A row for each judge and, if there are several, for each size of target."""
    table = Table(title="judges of looks against boxes (in percent)", title_justify="left")
    for name in ("", "n", "agree", "kappa", "yes, yes", "yes, no", "no, yes", "no, no"):
        table.add_column(name, justify="right" if name else "left")
    for name, found in judges.items():
        table.add_row(name, *_cells(found["agreement"]))
        if len(found["by_size"]) > 1:
            for size, part in found["by_size"].items():
                table.add_row(f"  target {size}", *_cells(part))
    table.caption = "yes, no: boxes say yes, the judge says no"
    return table


def calibration_notes(judges: Result) -> Iterator[str]:
    """For each judge, the share that a perfect judge would have found, and its warnings."""
    for name, found in judges.items():
        one = found["corrected"]
        if one is not None:
            of = f"of the {found['n']} right answers that it judged"
            says = f"{name}: finds {percent(one['apparent'])} {of} faithful"
            share = one["share"]
            if share is not None:
                says += (
                    f"; a perfect judge {percent(share['value'])} "
                    f"[{100 * share['low']:.1f}, {100 * share['high']:.1f}]"
                )
            errs = [f"{key} {_share(found[key])}" for key in ("sensitivity", "specificity")]
            yield f"{says} ({', '.join(errs)})"
        if found["warning"]:
            yield f"warning: {name}: {found['warning']}"


def _cells(agreement: Mapping[str, Any]) -> list[str]:
    kappa = agreement["kappa"]
    return [
        str(agreement["n"]),
        GAP if agreement["agree"] is None else f"{100 * agreement['agree']:.1f}",
        GAP if kappa is None else f"{kappa:.2f}",
        *(str(agreement[key]) for key in ("both", "first_only", "second_only", "neither")),
    ]


def _share(estimate: Mapping[str, Any] | None) -> str:
    return GAP if estimate is None else percent(estimate["value"])
