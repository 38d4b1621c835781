r"""Text without its typesetting: `\text{light blue}`, `$B$` and `**B**` are light blue and B.

Models set words so in the `\boxed{}` that V-Triune's questions ask for, and its files some ground truths.
"""

import re

DEEPEST = 4
"""Commands in commands that are taken off, ours."""

_SET = re.compile(
    r"\\(?:text(?:bf|it|rm|sf|tt|normal)?|math(?:rm|bf|it|sf)|mbox|bm|boxed|fbox)\s*\{([^{}]*)\}"
)
_BOLD = re.compile(r"(?<![^\s(])\*\*([^*\s]|[^*\s][^*]*[^*\s])\*\*(?!\w)")
_AROUND = re.compile(r"(?:\$\$?([^$]+)\$\$?|\\\((.*)\\\)|\\\[(.*)\\\])\.?", re.DOTALL)
_ESCAPED = re.compile(r"\\([%$&#_ ])")
_QUOTES = str.maketrans("‘’“”", "''\"\"")


def said_by(text: str) -> str:
    """The text without commands of type, boxes, math mode around it, escapes, bold; quotes are straight."""
    text = text.strip().translate(_QUOTES)
    for _ in range(DEEPEST):
        around = _AROUND.fullmatch(text)
        inner = text if around is None else next(part for part in around.groups() if part is not None)
        plain = _BOLD.sub(r"\1", _SET.sub(r"\1", inner)).strip()
        if plain == text:
            break
        text = plain
    return _ESCAPED.sub(r"\1", text).strip()
