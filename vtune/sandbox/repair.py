"""Make code that a model wrote parse, without changing code that already does.

CodeV, appendix 12: "auto-format and patch minor issues (e.g., indentation …)".
"""

import ast
import re
import textwrap
import warnings
from collections.abc import Iterator

_FENCED = re.compile(
    r"^[ \t]*```[ \t]*[\w+-]*[ \t]*\r?\n(.*?)(?:^[ \t]*```[ \t]*$|\Z)", re.DOTALL | re.MULTILINE
)


def repair(code: str) -> tuple[str, ast.Module]:
    """The code without its fences, repaired if it does not parse, and its syntax tree.

    Raises:
        SyntaxError: Of the code as written, if no repair helps.
        ValueError, RecursionError, MemoryError: What else Python's parser raises.
    """
    source = strip_fences(code)
    first_error: SyntaxError | None = None
    for candidate in _candidates(source):
        try:
            return candidate, parse(candidate)
        except SyntaxError as error:
            first_error = first_error or error
    assert first_error is not None
    raise first_error


def strip_fences(code: str) -> str:
    """The content of Markdown fences, where the code starts with one; several blocks are joined."""
    if not code.lstrip().startswith("```"):
        return code
    blocks = _FENCED.findall(code)
    return "\n".join(block.rstrip() for block in blocks) + "\n" if blocks else code


def parse(source: str) -> ast.Module:
    """Parse quietly: warnings about a model's escapes and comparisons are not ours to print."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)


def _candidates(source: str) -> Iterator[str]:
    yield source
    source = source.replace("\r\n", "\n").replace("\r", "\n").strip("\n")
    for tab in (4, 8):
        clean = source.expandtabs(tab)
        yield clean
        yield textwrap.dedent(clean)
        yield _align_first_line(clean)


def _align_first_line(source: str) -> str:
    """Indent the first line like the second: a prompt's template often swallows its indentation."""
    first, _, rest = source.partition("\n")
    following = next((line for line in rest.split("\n") if line.strip()), "")
    indent = following[: len(following) - len(following.lstrip())]
    return textwrap.dedent(f"{indent}{first.lstrip()}\n{rest}")
