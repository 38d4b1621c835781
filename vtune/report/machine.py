"""What a machine can run, as tables."""

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from vtune.report.numbers import GAP


def render_machine(result: Mapping[str, Any]) -> RenderableType:
    """The result of `vtune.runs.plan.doctor.run_doctor` as tables, then the fixes."""
    fixes = [Text(f"fix  {fix}") for fix in result["fixes"]] or [Text("nothing to do")]
    return Group(_machine(result), _packages(result), _checks(result), *_sandbox(result["sandbox"]), *fixes)


def _machine(result: Mapping[str, Any]) -> Table:
    table = Table(title="machine", title_justify="left", show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    memory = f"{result['memory_gb']} GB, {result['memory_available_gb']} GB available"
    rows = {
        "python": result["python"],
        "system": result["system"],
        "cores": str(result["cores"]),
        "memory": memory,
        "disk, free here": f"{result['disk_free_gb']} GB",
        "GPU": "\n".join(result["gpus"]) or "none",
        "torch and CUDA": result["cuda"],
    }
    for name, value in rows.items():
        table.add_row(name, Text(value))
    return table


def _checks(result: Mapping[str, Any]) -> Table:
    table = Table("check", "", "found", title="checks", title_justify="left")
    for row in result["checks"]:
        table.add_row(row["name"], row["level"], Text(row["found"]))
    return table


def _packages(result: Mapping[str, Any]) -> Table:
    table = Table("package", "wanted", "installed", "", title="packages", title_justify="left")
    for row in result["packages"]:
        note = ("ok" if row["ok"] else "NOT OK") if not row["note"] else row["note"]
        table.add_row(row["name"], row["wanted"] or GAP, row["installed"] or GAP, Text(note))
    return table


def _sandbox(sandbox: Mapping[str, Any]) -> list[RenderableType]:
    if sandbox["tier"] is None:
        without = "" if sandbox["needed"] else "; this recipe runs no code, and needs none"
        return [Text(f"sandbox: CANNOT RUN{without}"), *(Text(f"  {note}") for note in sandbox["notes"])]
    table = Table("layer", "", "why", title=f"sandbox: tier {sandbox['tier']}", title_justify="left")
    for layer in sandbox["layers"]:
        table.add_row(
            layer["name"].replace("_", " "), "on" if layer["on"] else "off", Text(layer["why"] or GAP)
        )
    reasons = {layer["why"] for layer in sandbox["layers"]}
    notes = [Text(f"note: {note}") for note in sandbox["notes"] if not any(note in why for why in reasons)]
    return [table, Text(f"room for {sandbox['capacity']} sessions at a time"), *notes]
