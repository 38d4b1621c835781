r"""Text without its typesetting: `\text{light blue}`, `$B$` and `**B**` are light blue and B.

Models typeset words this way in the `\boxed{}` that V-Triune asks for; so do some of its ground truths.
"""

import re

DEEPEST = 4
"""Limit on the nested commands that are removed; ours."""

_SET = re.compile(
    r"\\(?:text(?:bf|it|rm|sf|tt|normal)?|math(?:rm|bf|it|sf)|mbox|bm|boxed|fbox)\s*\{([^{}]*)\}"
)
_BOLD = re.compile(r"(?<![^\s(])\*\*([^*\s]|[^*\s][^*]*[^*\s])\*\*(?!\w)")
_AROUND = re.compile(r"(?:\$\$?([^$]+)\$\$?|\\\((.*)\\\)|\\\[(.*)\\\])\.?", re.DOTALL)
_ESCAPED = re.compile(r"\\([%$&#_ ])")
_QUOTES = str.maketrans("‘’“”", "''\"\"")


def said_by(text: str) -> str:
    """The text without type commands, boxes, outer math mode, escapes and bold; quotes become straight."""
    text = text.strip().translate(_QUOTES)
    for _ in range(DEEPEST):
        around = _AROUND.fullmatch(text)
        inner = text if around is None else next(part for part in around.groups() if part is not None)
        plain = _BOLD.sub(r"\1", _SET.sub(r"\1", inner)).strip()
        if plain == text:
            break
        text = plain
    return _ESCAPED.sub(r"\1", text).strip()
