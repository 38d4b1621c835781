"""Whether the installed packages are those that vtune requires."""

import importlib.metadata
from typing import Any

from packaging.requirements import Requirement

from vtune.report.progress import say

TESTED = {"torch": "2.13.0", "transformers": "5.19.0", "deepspeed": "0.19.8", "vllm": "0.32.0"}
"""One set that was tested together: the replacements for versions that do not fit."""


def packages() -> list[dict[str, Any]]:
    """Every package that vtune requires, without extras, as `package`; none of them is imported."""
    wanted = [Requirement(line) for line in importlib.metadata.requires("vtune") or ()]
    return [package(need) for need in wanted if need.marker is None or need.marker.evaluate({"extra": ""})]


def package(need: Requirement) -> dict[str, Any]:
    """`name`, `wanted` (a range), `installed` (None: it is not), `ok`, and a `note` on what is not ok."""
    installed = version_of(need.name)
    good = installed is not None and need.specifier.contains(installed, prereleases=True)
    note = "" if good else "not installed" if installed is None else "outside the range that was tested"
    return {
        "name": need.name,
        "wanted": str(need.specifier),
        "installed": installed,
        "ok": good,
        "note": note,
    }


def remedy(rows: list[dict[str, Any]]) -> str:
    """The command that fixes whatever is not ok among `packages`; empty if everything is."""
    broken = [_pin(row["name"], row["wanted"]) for row in rows if not row["ok"]]
    return f"pip install {' '.join(broken)}" if broken else ""


def warn_of_versions() -> None:
    """Warn in one line about packages outside their range, as pip --no-deps may leave them."""
    rows = [row for row in packages() if not row["ok"]]
    if rows:
        named = [f"{row['name']} {row['installed'] or 'is missing'} (wanted {row['wanted']})" for row in rows]
        say(f"warning: vtune was not tested with {', '.join(named)}; {remedy(rows)}")


def _pin(name: str, wanted: str) -> str:
    return f"'{name}=={TESTED[name]}'" if name in TESTED else f"'{name}{wanted}'"


def version_of(name: str) -> str | None:
    """The installed version of a package; None if it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
