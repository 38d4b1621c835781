"""What an audit found in a folder, for reports and pages."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vtune.files.json_text import read_record
from vtune.files.writing import write_atomically

NAME = "audit.json"
"""The file, beside the trajectories."""

VERDICTS = "audit-verdicts.jsonl"
"""What it says of each trajectory."""

SHARES = (
    *("looks", "asked", "judged_by", "note", "no_shares", "unscored", "spent", "all", "sources", "calls"),
    *("by_model", "agreement", "by_rule", "judges"),
)
"""Parts that say what calls showed, and who said so: it may be another judge than that of the evaluation, and
one that was paid. Those of the second line are of audits that hold models against boxes."""

PARTS = (*SHARES, "counterfactual", "people")
"""What of an audit is kept."""


def read_audit(folder: Path) -> dict[str, Any]:
    """What was found last, by its part; empty where nothing was kept.

    Raises:
        DataError: If the file cannot be read.
    """
    path = folder / NAME
    if not path.exists():
        return {}
    return read_record(path, fix="remove it: `vtune faithfulness` writes it again")


def keep_audit(folder: Path, result: Mapping[str, Any]) -> None:
    """Keep what an audit has found; a part that it has not asked for stays as it was.

    Shares are of one audit: where it has any, those of an earlier one are gone, those that only that one had
    too. A part of which there is nothing any more, as labels that were taken back, is not kept.

    Raises:
        DataError: If what is there cannot be read.
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
    """Remove what was kept, as of trajectories whose scores are others now; whether there was any."""
    there = (folder / NAME).exists()
    for name in (NAME, VERDICTS):
        (folder / name).unlink(missing_ok=True)
    return there
