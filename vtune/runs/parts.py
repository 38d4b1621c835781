"""`vtune parts`: which parts there are, and whether those of a user's file keep their promises."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from vtune.parts import OURS, TABLES, Kind
from vtune.runs.part_checks import (
    Check,
    check_filter,
    check_format,
    check_prompt,
    check_scorer,
    check_tool,
    check_verifier,
)
from vtune.uses import Used, use

ROOMS: Mapping[Kind, str] = {
    "verifier": "vtune.verifiers",
    "tool": "vtune.tools",
    "format": "vtune.data.formats.table",
    "scorer": "vtune.metrics.benchmarks",
    "prompt": "vtune.rollout.prompts",
    "filter": "vtune.curate.own",
    "family": "vtune.models.families",
}
"""Kind -> the module that has its table."""


def _check_family(name: str) -> list[Check]:
    from vtune.runs.part_checks_family import check_family  # loads torch, which a list of parts does without

    return check_family(name)


CHECKS: Mapping[Kind, Callable[[str], list[Check]]] = {
    "verifier": check_verifier,
    "tool": check_tool,
    "format": check_format,
    "scorer": check_scorer,
    "prompt": check_prompt,
    "filter": check_filter,
    "family": _check_family,
}
"""Kind -> what is promised by a part of a name."""


def list_parts(files: Sequence[Path]) -> dict[str, Any]:
    """All parts, ours and those of files.

    Returns:
        `parts`, an entry each: `kind`, `name`, `about` (a line) and `file` (None: ours).

    Raises:
        RecipeError: If a file cannot be used.
    """
    rooms = {kind: import_module(room) for kind, room in ROOMS.items()}
    theirs = {part: file.path for file in use(files) for part in file.parts}
    return {
        "parts": [
            {"kind": kind, "name": name, "about": _about(kind, name), "file": theirs.get((kind, name))}
            for kind in rooms
            for name in TABLES[kind]
            if name in OURS[kind] or (kind, name) in theirs
        ]
    }


def check_parts(path: Path) -> dict[str, Any]:
    """Try what the parts of a user's file promise.

    Returns:
        `file`, `sha256`, `ok`, and `parts`: `kind`, `name`, `about` and `checks`, each with
        its `name`, whether it is `ok`, and what was `found`.

    Raises:
        RecipeError: If the file cannot be used.
    """
    for room in ROOMS.values():
        import_module(room)
    (file,) = use([path])
    parts = _checked(file)
    ok = all(check["ok"] for part in parts for check in part["checks"])
    return {"file": file.path, "sha256": file.sha256, "ok": ok, "parts": parts}


def _checked(file: Used) -> list[dict[str, Any]]:
    return [
        {
            "kind": kind,
            "name": name,
            "about": _about(kind, name),
            "checks": [{"name": one.name, "ok": one.ok, "found": one.found} for one in CHECKS[kind](name)],
        }
        for kind in CHECKS
        for known, name in file.parts
        if known == kind
    ]


def _about(kind: Kind, name: str) -> str:
    table = TABLES[kind]
    return table.about(table[name])
