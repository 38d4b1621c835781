"""`vtune parts`: the parts that exist, and whether those in a user's file keep their promises."""

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from vtune.config import read_values
from vtune.errors import RecipeError
from vtune.parts import OURS, Kind
from vtune.registry import TABLES
from vtune.runs.parts.checks.check import Check, once
from vtune.uses import Used, use

ROOMS: Mapping[Kind, str] = {
    "verifier": "vtune.verifiers",
    "tool": "vtune.tools",
    "environment": "vtune.environments",
    "format": "vtune.data.formats.table",
    "scorer": "vtune.metrics.benchmarks",
    "protocol": "vtune.protocols",
    "prompt": "vtune.rollout.prompts",
    "loss": "vtune.update.losses",
    "family": "vtune.models.families",
    "filter": "vtune.curate.filters",
    "evidence": "vtune.reward.evidence_judge",
    "reward": "vtune.reward.part",
}
"""Kind -> the module that has its registry."""


def contract_of(kind: Kind) -> Callable[[str], list[Check]]:
    """The check for parts of a kind, which takes a name; imported on demand, since some need torch."""
    contract: Callable[[str], list[Check]] = getattr(
        import_module(f"vtune.runs.parts.checks.{kind}"), f"check_{kind}"
    )
    return contract


def list_parts(paths: Sequence[Path]) -> dict[str, Any]:
    """All parts: ours, and those in a user's files or in the files that recipes or suites name.

    Returns:
        `parts`, one entry each: `kind`, `name`, `about` (one line) and `file` (None: ours).

    Raises:
        RecipeError: If a file cannot be used, or a recipe names no files.
    """
    rooms = {kind: import_module(room) for kind, room in ROOMS.items()}
    theirs = {part: file.path for file in use(_files(paths)) for part in file.parts}
    return {
        "parts": [
            {"kind": kind, "name": name, "about": _about(kind, name), "file": theirs.get((kind, name))}
            for kind in rooms
            for name in TABLES[kind]
            if name in OURS[kind] or (kind, name) in theirs
        ]
    }


def check_parts(paths: Sequence[Path]) -> dict[str, Any]:
    """Test the promises of parts in a user's files, or in the files that recipes or suites name.

    All files are loaded before the first part is tested: a part of one may name a part of another.

    Returns:
        `ok`, `files`, each with its `file` and `sha256`, and `parts`: `kind`, `name`, `about`, `file` and
        `checks`, each with its `name`, whether it is `ok`, what was `found`, and its `fix` if it is not ok.

    Raises:
        RecipeError: If a file cannot be used, or a recipe names no files.
    """
    for room in ROOMS.values():
        import_module(room)
    files = use(_files(paths))
    parts = [part for file in files for part in _checked(file)]
    ok = all(check["ok"] for part in parts for check in part["checks"])
    return {
        "ok": ok,
        "files": [{"file": file.path, "sha256": file.sha256} for file in files],
        "parts": parts,
    }


def _files(paths: Sequence[Path]) -> list[Path]:
    """The given Python files, and those that the given recipes name."""
    named = [_named(path) if path.suffix in (".yaml", ".yml") else [path] for path in paths]
    return [file for files in named for file in files]


def _named(recipe: Path) -> list[Path]:
    """The files under `uses` in a recipe or suite; the agent of a suite is a separate file."""
    values = read_values(recipe)
    named = values.get("uses") if isinstance(values, dict) else None
    if not isinstance(named, list) or not named or not all(isinstance(file, str) for file in named):
        raise RecipeError(
            f"{recipe} names no files under its own `uses`",
            fix="give a .py file that adds parts; `vtune recipes check` checks the recipe itself",
        )
    return [recipe.parent / file for file in named]


def _checked(file: Used) -> list[dict[str, Any]]:
    return [
        {
            "kind": kind,
            "name": name,
            "about": _about(kind, name),
            "file": file.path,
            "checks": [
                {"name": one.name, "ok": one.ok, "found": one.found, "fix": one.fix}
                for one in once(contract_of(kind)(name))
            ],
        }
        for kind in ROOMS
        for known, name in file.parts
        if known == kind
    ]


def _about(kind: Kind, name: str) -> str:
    table = TABLES[kind]
    return table.about(table[name])
