"""Makes a model's code parse, without changing code that already does.

CodeV, appendix 12: "auto-format and patch minor issues (e.g., indentation …)".
"""

import ast
import re
import warnings
from collections.abc import Iterator
from contextlib import suppress

_FENCED = re.compile(
    r"^[ \t]*```[ \t]*(?:[\w+-]+[ \t]*)?\r?\n(.*?)(?:^[ \t]*```[ \t]*$|\Z)", re.DOTALL | re.MULTILINE
)
MOST_PARTS = 100
"""Parts of an imported name; ours: Python's parser takes time quadratic in their number."""
_LONG_IMPORT = re.compile(rf"(?:\bimport|\bfrom|,)[\s\\]*\w+(?:[\s\\]*\.[\s\\]*\w+){{{MOST_PARTS}}}")


def unwrap(code: str) -> str:
    """Strip the fences from the code.

    Raises:
        ValueError: If Python's parser would take too long.
    """
    source = strip_fences(code)
    if _LONG_IMPORT.search(source):
        raise ValueError(f"an imported name has more than {MOST_PARTS} parts")
    return source


def repair(source: str) -> tuple[str, ast.Module]:
    """Unwrapped code, repaired if it does not parse, and its syntax tree.

    Raises:
        SyntaxError: The error of the code as written, if no repair helps.
        ValueError, RecursionError, MemoryError: Other errors of Python's parser.
    """
    try:
        return source, parse(source)
    except IndentationError as error:
        as_written = error
    tried = {source}
    for candidate in _candidates(source):
        if candidate in tried:
            continue
        tried.add(candidate)
        with suppress(SyntaxError):
            return candidate, parse(candidate)
    raise as_written


def strip_fences(code: str) -> str:
    """The content of Markdown fences, if the code starts with one; several blocks are joined."""
    if not code.lstrip().startswith("```"):
        return code
    blocks = _FENCED.findall(code)
    return "\n".join(block.rstrip() for block in blocks) + "\n" if blocks else code


def parse(source: str) -> ast.Module:
    """Parse silently: warnings about escapes and comparisons in a model's code are not for our user."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)


def _candidates(source: str) -> Iterator[str]:
    """The same code with its indentation corrected, in several ways."""
    source = source.replace("\r\n", "\n").replace("\r", "\n").strip("\n")
    for tab in (4, 8):
        clean = source.expandtabs(tab)
        yield clean
        yield _dedent(clean)
        yield _align_first_line(clean)


def _dedent(source: str) -> str:
    """Remove the indentation that all lines share; there are no tabs. Many times faster than `textwrap`."""
    lines = source.split("\n")
    margin = min((len(line) - len(line.lstrip(" ")) for line in lines if line.strip(" ")), default=0)
    return "\n".join(line[margin:] for line in lines)


def _align_first_line(source: str) -> str:
    """Indent the first line like the second: prompt templates often swallow its indentation."""
    first, _, rest = source.partition("\n")
    following = next((line for line in rest.split("\n") if line.strip()), "")
    indent = following[: len(following) - len(following.lstrip())]
    return _dedent(f"{indent}{first.lstrip()}\n{rest}")


def one_line(error: BaseException) -> str:
    """What went wrong before the code could run, on one line."""
    if isinstance(error, SyntaxError):
        where = f" (line {error.lineno}: {(error.text or '').strip()})" if error.lineno else ""
        return f"{type(error).__name__}: {error.msg}{where}"
    if isinstance(error, RecursionError | MemoryError):
        return f"{type(error).__name__}: the code is nested too deeply"
    return f"{type(error).__name__}: {error}"
