"""The one YAML reader: a document with its nodes, refused if too deep, too large, or larger than it looks.

Ten lines of aliases can stand for a thousand million values, and a kilobyte of brackets takes the parser a
minute: both are noticed while parsing, after at most `MAX_PARTS` parts.
"""

import copy
import functools
import re
from typing import Any

import yaml

MAX_DEPTH = 32
"""Limit on nested lists and mappings; ours: no section of a recipe is deeper than eight."""
MAX_PARTS = 20_000
"""Limit on the keys and values of a document, with aliases expanded (ours)."""
MAX_CHARACTERS = 2**20
"""Limit on the characters of a document; ours."""
MAX_KEPT = 2**14
"""Limit on the characters of a document that is cached; ours: all that ship are shorter."""
MAX_DIGITS = 100
"""Limit on the characters of a number; ours: reading `1:1:1:…`, a number in base 60, takes quadratic time."""

_OTHER_BASE = re.compile(r"[-+]?(0[0-7_]+|.*:.*)")
"""Numbers that YAML 1.1 reads in base 8 (`010`) or 60 (`1:30`), which is never intended."""

WRONG_FILE = "no recipe is that large or that deep: check that this is the right file"
TEXT = "correct it, or put it in quotes if it is text"


class Unfit(yaml.MarkedYAMLError):
    """Valid YAML with something that no recipe may contain; its `note` is the remedy."""


def read_yaml(text: str) -> tuple[yaml.Node | None, Any]:
    """The nodes of a document, which know their lines, and its value; (None, None) if it is empty.

    Raises:
        yaml.YAMLError: If it is not YAML, contains an invalid value, or is too large.
    """
    if len(text) > MAX_CHARACTERS:
        raise Unfit(problem=f"it has more than {MAX_CHARACTERS} characters", note=WRONG_FILE)
    if len(text) > MAX_KEPT:
        return _read(text)
    root, value = _kept(text)
    return root, copy.deepcopy(value)


def explained(error: yaml.YAMLError, fix: str) -> tuple[str, str]:
    """(what is wrong with a document, the remedy); `fix` is the remedy for a syntax error."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    if isinstance(error, Unfit):
        return f"this YAML cannot be used: {problem}", error.note or ""
    if isinstance(error, yaml.constructor.ConstructorError):
        problem = problem.replace("could not determine a constructor for the tag", "it has the unknown tag")
        problem = problem.replace("found unhashable key", "a key is a list or a mapping")
        return f"this YAML cannot be used: {problem}", "write plain keys and values, without tags"
    context = getattr(error, "context", None)
    begun = getattr(error, "context_mark", None)
    since = f" {context}" if context else ""
    if begun is not None and mark is not None and begun.line != mark.line:
        since += f" that begins in line {begun.line + 1}"
    return f"not YAML:{since + ':' if since else ''} {problem}", fix


@functools.lru_cache(maxsize=256)
def _kept(text: str) -> tuple[yaml.Node | None, Any]:
    """Cached, since recipes that refer to each other are read repeatedly. Nodes are never changed."""
    return _read(text)


def _read(text: str) -> tuple[yaml.Node | None, Any]:
    loader = _Loader(text)
    try:
        root = loader.get_single_node()
        return root, None if root is None else loader.construct_document(root)
    except (ValueError, OverflowError, TypeError, AttributeError) as error:
        # e.g. a date that does not exist, a number with ten thousand digits, a list as a key
        raise Unfit(problem=f"a value cannot be read: {error}", note=TEXT) from None
    finally:
        loader.dispose()


class _Loader(yaml.SafeLoader):
    """Counts parts while composing, so that no more than the limit is ever built."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._parts = 0
        self._sizes: dict[int, int] = {}
        """`id` of each finished node with an anchor -> number of its parts, with aliases expanded."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]
        mark: Any = event.start_mark
        begun = self._parts
        self._count(1, mark)
        self._depth += 1
        if self._depth > MAX_DEPTH:
            problem = f"it is nested more deeply than {MAX_DEPTH} levels"
            raise Unfit(problem=problem, problem_mark=mark, note=WRONG_FILE)
        node = super().compose_node(parent, index)
        self._depth -= 1
        if isinstance(event, yaml.AliasEvent):
            if id(node) not in self._sizes:
                problem = f"the alias `*{event.anchor}` stands for a value that contains it"
                raise Unfit(problem=problem, problem_mark=mark, note="write a value in its place")
            self._count(self._sizes[id(node)], mark)
        elif getattr(event, "anchor", None) is not None:
            self._sizes[id(node)] = self._parts - begun
        return node

    def _number(self, node: yaml.ScalarNode) -> int | float:
        if len(node.value) > MAX_DIGITS:
            problem = f"a number has more than {MAX_DIGITS} characters"
            raise Unfit(problem=problem, problem_mark=node.start_mark, note=TEXT)
        value = (
            self.construct_yaml_int(node) if node.tag.endswith(":int") else self.construct_yaml_float(node)
        )
        if _OTHER_BASE.fullmatch(node.value):
            raise Unfit(
                problem=f"YAML reads {node.value} as {value}",
                problem_mark=node.start_mark,
                note="write the number that you mean, or put it in quotes if it is text",
            )
        return value

    def _text(self, node: yaml.ScalarNode) -> str:
        if "\0" in node.value:
            raise Unfit(problem="a text contains a NUL", problem_mark=node.start_mark, note="remove it")
        return str(self.construct_scalar(node))

    def _count(self, parts: int, mark: Any) -> None:
        self._parts += parts
        if self._parts > MAX_PARTS:
            raise Unfit(
                problem=f"it has more than {MAX_PARTS} keys and values, counting each use of an alias",
                problem_mark=mark,
                note=WRONG_FILE,
            )


_Loader.add_constructor("tag:yaml.org,2002:str", _Loader._text)
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader._number)
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader._number)
