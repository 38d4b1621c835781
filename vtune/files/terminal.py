r"""The one place that cleans foreign text for a terminal.

Data, file names, and replies of models and judges may contain escape sequences, which move the cursor,
recolour or retitle a terminal, and bidirectional controls, which make a text read differently. Both are shown
escaped, as `\x1b` or `\u202e`.
"""

import re
from collections.abc import Mapping
from typing import Any

# C0 except tab and line feed, DEL and C1; bidirectional controls; line and paragraph separators; byte order
# mark; invisible tags; half surrogate pairs, which no stream can encode.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e007f\ud800-\udfff]"
)


def clean(text: str) -> str:
    """A text with its control characters escaped; tabs and line breaks stay."""
    return _UNSAFE.sub(_spelled, text)


def one_line(text: str) -> str:
    """The same, also without line breaks and tabs: for names, which must stay on one line."""
    return clean(text).replace("\n", "\\n").replace("\t", "\\t")


def brief(text: str, *, most: int = 500) -> str:
    """A text with its lines cut to a maximum length: an error may quote a whole file."""
    lines = text.split("\n")
    return "\n".join(line if len(line) <= most else f"{line[: most - 60]} … {line[-50:]}" for line in lines)


def cleaned(value: Any) -> Any:
    """A nested value with all of its texts cleaned, including keys."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {cleaned(key): cleaned(item) for key, item in value.items()}
    if isinstance(value, list):
        return [cleaned(item) for item in value]
    if isinstance(value, tuple):
        return tuple(cleaned(item) for item in value)
    return value


def clean_json(text: str) -> str:
    """A JSON document with control characters as JSON escapes: the same values, safe to print."""
    return _UNSAFE.sub(_as_json, text)


def _spelled(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def _as_json(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
