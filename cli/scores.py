"""`vtune scores`: exchange replies and scores with official scorers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from .options import AsJson

app = typer.Typer(no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(help="Folder of a finished evaluation.")]


@app.command("export")
def export(
    folder: Folder,
    out: Annotated[Path, typer.Option("--out", help="JSON file for the benchmark's official scorer.")],
    as_json: AsJson = False,
) -> None:
    """Write the replies of an evaluation as the benchmark's official scorer reads them."""
    from vtune.runs.evaluate.scorers import export_replies

    from .output import show

    def line(found: Mapping[str, Any]) -> str:
        return f"{found['out']}: {found['replies']} replies, {found['waiting']} of them without a score"

    show(export_replies(folder, out), line, as_json=as_json)


@app.command("import")
def import_(
    folder: Folder,
    file: Annotated[Path, typer.Argument(help="What the official scorer has written.")],
    as_json: AsJson = False,
) -> None:
    """Import the scores of the benchmark's official scorer into an evaluation."""
    from vtune.report.numbers import number
    from vtune.runs.evaluate.scorers import NAMED, import_scores

    from .output import show

    def line(found: Mapping[str, Any]) -> str:
        facts = found["official"]
        left_out = f", {facts['left_out']} left out by the scorer" if facts["left_out"] else ""
        taken = (
            f"{facts['taken']} scores taken{left_out}; of {facts['compared']} that vtune scores itself, "
            f"{len(facts['differ'])} differ. Score: {number(found['score'].get('score'))}"
        )
        if unknown := facts["not_exported"]:
            named = ", ".join(unknown[:NAMED]) + (" …" if len(unknown) > NAMED else "")
            taken += f"\n{len(unknown)} row(s) of questions that were not exported are not used: {named}"
        stale = (
            "\nthe results of `vtune faithfulness` belonged to the old scores and were removed: run it again"
        )
        return taken + stale if found["audit_removed"] else taken

    show(import_scores(folder, file), line, as_json=as_json)
