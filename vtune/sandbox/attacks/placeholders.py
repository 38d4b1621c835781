"""What `{{NAME}}` in an attack stands for. Names are found by pattern, so foreign suites run too."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from vtune.errors import DataError

Kind = Literal[
    "canary",
    "victim_file",
    "secret_file",
    "token8",
    "port",
    "stream_socket",
    "datagram_socket",
    "abstract_socket",
    "broker_pid",
    "zygote_pid",
    "victim_pid",
    "sibling_pid",
    "sibling_workspace",
    "root",
    "workspace",
    "home",
    "tmp",
    "site_packages",
    "python",
]
"""`canary` is a folder of host files, `root` the sandbox's own folder, `token8` the first characters of the
secret (never all of it: an error message quoting the code would look like a leak)."""

PATTERNS: tuple[tuple[str, Kind], ...] = (
    (r"TOKEN\d*", "token8"),
    (r"ZYG(OTE)?(_?PID)?", "zygote_pid"),
    (r"(BROKER|TRAINER|PARENT|HOST)(_?PID)?", "broker_pid"),
    (r"SIB(LING)?_?PID", "sibling_pid"),
    (r"SIB\w*", "sibling_workspace"),
    (r"VICTIM(_?PID)?", "victim_pid"),
    (r"SECRET\w*", "secret_file"),
    (r"\w*PORT|TCP|UDP", "port"),
    (r"ABS\w*", "abstract_socket"),
    (r"\w*DGRAM\w*", "datagram_socket"),
    (r"\w*(SOCK|UNIX)\w*", "stream_socket"),
    (r"WS|WORKSPACE", "workspace"),
    (r"ROOT|POOL", "root"),
    (r"HOME", "home"),
    (r"TMP(DIR)?", "tmp"),
    (r"RUNTIME|SITE\w*", "site_packages"),
    (r"PY(THON)?", "python"),
    (r"CANARY|\w*DIR", "canary"),
    (r"\w*(PATH|FILE)", "victim_file"),
    (r"\w+PID", "victim_pid"),
)
"""The first pattern that matches the whole name wins."""

PLACEHOLDER = re.compile(r"\{\{([A-Z][A-Z0-9_]*)\}\}")


def kinds(source: str, path: Path) -> dict[str, Kind]:
    """What each placeholder in a snippet stands for.

    Raises:
        DataError: If a placeholder fits no pattern.
    """
    found: dict[str, Kind] = {}
    for name in PLACEHOLDER.findall(source):
        kind = next((kind for pattern, kind in PATTERNS if re.fullmatch(pattern, name)), None)
        if kind is None:
            raise DataError(
                f"there is no value for the placeholder {{{{{name}}}}}",
                where=str(path),
                fix="use a name of vtune/sandbox/README.md, or write {{ X }} where the code means braces",
            )
        found[name] = kind
    return found


def fill(source: str, path: Path, values: Mapping[Kind, str]) -> str:
    """The snippet with every placeholder filled in."""
    meant = kinds(source, path)
    return PLACEHOLDER.sub(lambda match: values[meant[match[1]]], source)
