"""Repair helps code that does not parse and leaves the rest alone."""

import ast
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.growth import growth
from vtune.sandbox import repair as module
from vtune.sandbox.repair import MOST_PARTS, repair, strip_fences, unwrap

BROKEN = {
    "python fence": ("```python\na = 1\n```", "a = 1"),
    "fence with spaces": ("\n  ``` python \na = 1\n ```\n", "a = 1"),
    "fence without an end": ("```py\na = 1\n", "a = 1"),
    "two fences": ("```python\na = 1\n```\ntext\n```python\nb = a\n```", "a = 1\nb = a"),
    "windows line ends in a fence": ("```python\r\nif 1:\r\n    a = 1\r\n```", "if 1:\n    a = 1"),
    "everything indented": ("    a = 1\n    b = 2", "a = 1\nb = 2"),
    "first line not indented": ("a = 1\n    b = 2\n    c = 3", "a = 1\nb = 2\nc = 3"),
    "first line indented": ("  a = 1\nb = 2", "a = 1\nb = 2"),
    "tabs and spaces": ("if 1:\n\ta = 1\n        b = 2", "if 1:\n    a = 1\n    b = 2"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_repaired_code_means_what_was_meant(name: str) -> None:
    broken, meant = BROKEN[name]
    assert ast.dump(repair(unwrap(broken))[1]) == ast.dump(ast.parse(meant))


@pytest.mark.parametrize("code", ["a = '''\n\tx\r\n'''", "if 1:\n\ta = 1", "x = '```'", "# ```\na = 1", ""])
def test_code_that_parses_is_not_touched(code: str) -> None:
    assert repair(unwrap(code))[0] == code


def test_code_beyond_repair_raises_its_own_error() -> None:
    with pytest.raises(SyntaxError) as raised:
        repair("a = 1\nb = = 2")
    assert raised.value.lineno == 2


def test_an_error_that_no_indentation_mends_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = []

    def parse(source: str) -> ast.Module:
        parsed.append(source)
        return ast.parse(source)

    monkeypatch.setattr(module, "parse", parse)
    with pytest.raises(SyntaxError):
        repair("if 1:\n\ta = = 1\n")
    assert len(parsed) == 1
    with pytest.raises(IndentationError):
        repair("  a = 1\nb = 2\n c = 3")
    assert len(parsed) == len(set(parsed)) > 1


def test_the_time_for_a_fence_grows_with_the_spaces_not_with_their_square() -> None:
    def strip(spaces: int) -> Callable[[], object]:
        code = f"```{' ' * spaces}!"
        return lambda: strip_fences(code)

    assert strip(8)() == f"```{' ' * 8}!"
    assert growth(strip, 4000, times=8) < 24


@pytest.mark.parametrize("start", ["import a", "from a", "import b, a", "import \\\na"])
def test_an_imported_name_without_end_is_not_parsed(start: str) -> None:
    end = " import x" if start.startswith("from") else ""
    most = start + ".a" * (MOST_PARTS - 1) + end
    assert unwrap(most) == most
    for dot in (".", " . ", ".\\\n"):
        with pytest.raises(ValueError, match="parts"):
            unwrap(start + f"{dot}a" * MOST_PARTS + end)


@given(st.text())
def test_any_text_is_repaired_or_refused(text: str) -> None:
    try:
        source, tree = repair(unwrap(text))
    except (SyntaxError, ValueError):
        return
    assert ast.dump(ast.parse(source)) == ast.dump(tree)


@given(st.text(alphabet="a=1 \n"))
def test_a_fence_around_code_goes_without_trace(code: str) -> None:
    assert strip_fences(f"```python\n{code}\n```").strip() == code.strip()
