"""What an audit found in a folder, for reports and pages."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vtune.files.json_text import read_record
from vtune.files.writing import write_atomically

NAME = "audit.json"
"""The file, next to the trajectories."""

VERDICTS = "audit-verdicts.jsonl"
"""Its findings per trajectory."""

SHARES = (
    *("looks", "asked", "judged_by", "note", "no_shares", "unscored", "spent", "all", "sources", "calls"),
    *("by_model", "agreement", "by_rule", "judges"),
)
"""Parts about what calls showed, and who judged that: the judge may differ from the evaluation's, and may
cost money. Those in the second line come from audits that compare models with boxes."""

PARTS = (*SHARES, "counterfactual", "people")
"""The parts of an audit that are kept."""


def read_audit(folder: Path) -> dict[str, Any]:
    """The latest findings, by part; empty if nothing was kept.

    Raises:
        DataError: If the file cannot be read.
    """
    path = folder / NAME
    if not path.exists():
        return {}
    return read_record(path, fix="remove it: `vtune faithfulness` writes it again")


def keep_audit(folder: Path, result: Mapping[str, Any]) -> None:
    """Keep the findings of an audit; parts that it did not compute stay unchanged.

    Shares belong to one audit: if it has any, all shares of an earlier one are removed, even those that only
    the earlier one had. An empty part, e.g. labels that were all withdrawn, is not kept.

    Raises:
        DataError: If the existing file cannot be read.
        RecipeError: If it cannot be written.
    """
    before = read_audit(folder)
    stays = {name: part for name, part in before.items() if "all" not in result or name not in SHARES}
    kept = stays | {name: result[name] for name in PARTS if name in result}
    found = {name: part for name, part in kept.items() if part}
    if found != before:
        text = json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False)
        write_atomically(folder / NAME, text + "\n", option=None)


def forget_audit(folder: Path) -> bool:
    """Remove what was kept, e.g. if trajectories have been rescored; returns whether there was anything."""
    there = (folder / NAME).exists()
    for name in (NAME, VERDICTS):
        (folder / name).unlink(missing_ok=True)
    return there
