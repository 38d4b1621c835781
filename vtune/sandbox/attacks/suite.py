"""A suite of attacks: a folder of snippets, each with a header that states what must not happen."""

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vtune.errors import DataError

SHIPPED = Path(__file__).parent / "snippets"

HEADER = re.compile(r"#\s*(MUST NOT|CHECK|SOFT|WEAK-OK|LAYER)\s*:\s*(.*)")
CONTINUATION = re.compile(r"#(?:\s\s+|\t)(\S.*)")
"""A comment indented by more than one space continues a header above it that is empty or ends in a comma."""
SOFT_SECONDS = 2.0

LAYERS = (
    "landlock",
    "seccomp",
    "namespaces",
    "rlimits",
    "timer",
    "quota",
    "freeze",
    "protocol",
    "collector",
    "seals",
    "fork server",
)
"""What can stop an attack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """One hostile snippet."""

    name: str
    """The file's name without its ending."""
    path: Path
    must_not: str
    """What the snippet tries and what must not happen."""
    check: str
    """How that is detected. Every check is made after every attack; some phrases enable additional ones."""
    soft: float
    """Soft time limit of the call, in seconds."""
    weak_ok: bool
    """Whether it may run with a layer left out; False if it would harm the machine."""
    layer: str
    """The layer that is meant to stop it, if the header names one."""
    source: str
    """The code, including headers and placeholders."""


def read_suite(folder: Path, only: Sequence[str] = ()) -> list[Attack]:
    """Read every `*.py` of a folder, in order of name.

    A file begins with comment lines `# MUST NOT: ...` and `# CHECK: ...`; it may add `# SOFT:` (seconds,
    default 2), `# WEAK-OK: 0` (not to be run with a layer left out) and `# LAYER:` (the layer that is meant
    to stop it). Several lines with one name are joined by "; ", and an indented comment continues a line
    above it that ends in a comma. `{{NAME}}` in its code is filled in for each run, see `placeholders`.

    Args:
        folder: The folder of the suite.
        only: Names of attacks to keep, with or without the number in front; all if empty.

    Raises:
        DataError: If there is no such folder or no file in it, a header is missing or wrong, or `only` names
            an attack that does not exist.
    """
    paths = sorted(folder.glob("*.py"))
    if not paths:
        raise DataError("no attacks found here", where=str(folder), fix="give a folder of *.py snippets")
    attacks = [_read(path) for path in paths]
    if not only:
        return attacks
    names = {attack.name: (attack.name, re.sub(r"^\d+_", "", attack.name)) for attack in attacks}
    unknown = sorted(set(only) - {name for both in names.values() for name in both})
    if unknown:
        raise DataError(
            f"no attack is named {', '.join(unknown)}",
            where=str(folder),
            fix=_nearest(unknown, names),
        )
    return [attack for attack in attacks if set(names[attack.name]) & set(only)]


def _nearest(unknown: Sequence[str], names: Iterable[str]) -> str:
    alike = sorted({name for one in unknown for name in difflib.get_close_matches(one, names)})
    return f"perhaps {' or '.join(alike)}" if alike else "give the names of files there, without .py"


def _read(path: Path) -> Attack:
    try:
        source = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the attack cannot be read: {error}", where=str(path)) from error
    headers = _headers(source)
    for name in ("MUST NOT", "CHECK"):
        if not headers.get(name):
            raise DataError(
                f"the attack has no `# {name}:` line",
                where=str(path),
                fix=f"begin the file with `# {name}: ...`",
            )
    if headers.get("LAYER", LAYERS[0]) not in LAYERS:
        raise DataError(
            f"there is no layer {headers['LAYER']!r}",
            where=str(path),
            fix=f"write `# LAYER:` with one of {', '.join(LAYERS)}, or leave it out",
        )
    if headers.get("WEAK-OK", "1") not in ("0", "1"):
        raise DataError(
            f"`# WEAK-OK: {headers['WEAK-OK']}` is neither 0 nor 1",
            where=str(path),
            fix="write 0 for an attack that must not run with a layer left out",
        )
    return Attack(
        name=path.stem,
        path=path,
        must_not=headers["MUST NOT"],
        check=headers["CHECK"],
        soft=_soft(headers, path),
        weak_ok=headers.get("WEAK-OK") != "0",
        layer=headers.get("LAYER", ""),
        source=source,
    )


def _headers(source: str) -> dict[str, str]:
    """The `# NAME: text` lines before the first line of code, joined for each name."""
    found: dict[str, list[str]] = {}
    latest: list[str] | None = None
    for line in source.splitlines():
        if line.strip() and not line.startswith("#"):
            break
        if match := HEADER.fullmatch(line.strip()):
            latest = found.setdefault(match[1], [])
            latest.append(match[2].strip())
        elif latest and latest[-1][-1:] in ("", ",") and (match := CONTINUATION.fullmatch(line.rstrip())):
            latest[-1] = f"{latest[-1]} {match[1]}".strip()
        else:
            latest = None
    return {name: "; ".join(filter(None, texts)) for name, texts in found.items()}


def _soft(headers: dict[str, str], path: Path) -> float:
    text = headers.get("SOFT", str(SOFT_SECONDS))
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 600:
        raise DataError(
            f"`# SOFT: {text}` is not a time limit", where=str(path), fix="write seconds, e.g. `# SOFT: 2.0`"
        )
    return seconds
