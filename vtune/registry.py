"""How parts are found by name: one `Parts` per kind, in the package that owns the kind."""

import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from vtune.errors import RecipeError, nearest
from vtune.parts import OURS, WORDS, Kind

T = TypeVar("T")

YOURS = (
    "To add your own, list its file under `uses: [./mine.py]` of the recipe or suite; commands that read "
    "neither take `--uses mine.py`"
)
"""The next step if a name may be that of a part whose file was not given."""


def or_yours(hint: str) -> str:
    """The next step for an unknown name, plus how to add a part with that name."""
    return f"{hint}{'' if hint.endswith('?') else '.'} {YOURS}"


_CALL = re.compile(r"(async )?(\w+)\((.*?)\)")
"""A function signature in a table's notation: whether it is awaited, its name, its arguments."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
"""Names occur in recipes, in columns of metrics and in file names."""


TABLES: dict[Kind, "Parts[Any]"] = {}
"""Kind -> its table, once the package that defines it is loaded."""


class Parts(Mapping[str, T]):
    """The parts of one kind, by name: ours first, in the order of `OURS`, then those from files.

    Tables are per process: like `sys.modules`, they contain what was imported.

    Args:
        kind: Kind of the parts.
        about: Returns the one-line description of a part.
        made: The class of every part; None: any.
        taken: Words that mean something else where a name of this kind is expected.
        calls: Signatures of a part's functions, e.g. "verify(reply, sample) -> Verdict".
            If `made` is None, the part is the function itself, under any name.
    """

    def __init__(
        self,
        kind: Kind,
        about: Callable[[T], str],
        made: type[T] | None = None,
        taken: Collection[str] = (),
        calls: Sequence[str] = (),
    ) -> None:
        self.kind = kind
        self.word = WORDS.get(kind, kind)
        """The name of one such part in messages."""
        self._taken = frozenset(taken)
        self._calls = tuple(calls)
        self.about = about
        self._made = made
        self._ours = OURS[kind]
        self._added: dict[str, T] = {}
        self._places: dict[str, tuple[str, str, int]] = {}
        """For a user's own parts: module, file and line."""
        TABLES[kind] = self

    def add(self, name: str, part: T) -> T:
        """Add a part to the table; call it where the part is defined, when its file is loaded.

        Raises:
            RecipeError: If the name is already used or invalid, the part is not of the table's type, or one
                of its functions cannot be called as this kind requires.
        """
        caller = sys._getframe(1)
        module, place = caller.f_globals["__name__"], f"{caller.f_code.co_filename}:{caller.f_lineno}"
        if name in self._ours and self._ours[name] != module:
            raise RecipeError(
                f"`{name}` is the name of vtune's own {self.word}",
                where=place,
                fix=self._kept(name, caller.f_code.co_filename),
            )
        if name in self._taken:
            raise RecipeError(
                f"`{name}` is reserved: it cannot name your {self.word}",
                where=place,
                fix="give yours another name",
            )
        if name in self._places:
            other, file, line = self._places[name]
            what = f"line {line} of {'this file' if other == module else file}"
            raise RecipeError(
                f"{what} already adds {self.word} `{name}`", where=place, fix="rename one of the two"
            )
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise RecipeError(
                f"{name!r} is not a valid name ({self.word})",
                where=place,
                fix="start with a letter; then letters, digits, _ and -",
            )
        if self._made is not None and not isinstance(part, self._made):
            raise RecipeError(
                f"{self.word} `{name}` is of type {type(part).__name__}, not {self._made.__name__}",
                where=place,
                fix=f"add a {self._made.__name__}(…): see cli/parts.md",
            )
        self._check_calls(name, part, place)
        if name not in self._ours:
            self._places[name] = module, caller.f_code.co_filename, caller.f_lineno
        self._added[name] = part
        return part

    def _check_calls(self, name: str, part: T, place: str) -> None:
        """Check that the functions of a part can be called as its kind requires."""
        for written in self._calls:
            found = _CALL.match(written)
            assert found is not None
            awaited, called, words = found.groups()
            function: Any = part if self._made is None else getattr(part, called)
            if not callable(function):
                continue
            own = function.__name__ if inspect.isfunction(function) else called
            called = own if self._made is None else called
            wrong = _ill_called(function, called, words.split(", "), awaited=awaited is not None)
            if wrong:
                own = called if own == "<lambda>" else own
                right = f"{awaited or ''}def {own}({words}){written[found.end() :]}"
                raise RecipeError(
                    f"`{called}` of {self.word} `{name}` {wrong}",
                    where=_line_of(function, place),
                    fix=f"write `{right}`: see cli/parts.md",
                )

    def _kept(self, name: str, file: str) -> str:
        """The next step if a file adds a name of ours; it may be the very file that defines ours."""
        module = tuple(self._ours[name].split("."))
        if Path(file).with_suffix("").parts[-len(module) :] == module:
            return f"this file is that part: `pytest tests/runs/parts/test_ours.py -k {name}` tries it"
        return "give yours another name"

    def drop(self, module: str) -> None:
        """Remove everything that a user's module has added."""
        for name in self.of(module):
            del self._added[name], self._places[name]

    def modules(self) -> set[str]:
        """The modules, except ours, that have added parts."""
        return {module for module, *_ in self._places.values()}

    def of(self, module: str) -> list[str]:
        """The names that a user's module has added."""
        return [name for name, (where, *_) in self._places.items() if where == module]

    def known(self, name: str) -> str:
        """The name itself, if it is known.

        Raises:
            ValueError: If it is unknown; names the closest one.
        """
        if name not in self:
            raise ValueError(f"there is no {self.word} `{name}`; {self.meant(name)}")
        return name

    def meant(self, name: str, *others: str) -> str:
        """The next step for an unknown name: the closest of the table's names and `others`, or `uses`."""
        return or_yours(nearest(name, [*self, *others]))

    def __getitem__(self, name: str) -> T:
        if name not in self._added and name in self._ours:
            import_module(self._ours[name])
        return self._added[name]

    def __contains__(self, name: object) -> bool:
        return name in self._ours or name in self._added

    def __iter__(self) -> Iterator[str]:
        yield from self._ours
        yield from self._places

    def __len__(self) -> int:
        return len(self._ours) + len(self._places)


def first_line(thing: object) -> str:
    """The first paragraph of a function's or class's docstring, on one line."""
    return " ".join((thing.__doc__ or "").strip().partition("\n\n")[0].split())


def _ill_called(function: Callable[..., Any], name: str, words: Sequence[str], *, awaited: bool) -> str:
    """Why a function cannot be called with this many arguments; empty if it can."""
    runs = function if inspect.isroutine(function) else getattr(function, "func", type(function).__call__)
    if not awaited and inspect.iscoroutinefunction(runs):
        return "is `async`, but is not awaited"
    try:
        takes = inspect.signature(function)
    except ValueError:
        return ""  # a few functions in C have no signature
    try:
        takes.bind(*words)
    except TypeError:
        bare = [one.replace(annotation=inspect.Parameter.empty) for one in takes.parameters.values()]
        shown = takes.replace(parameters=bare, return_annotation=inspect.Signature.empty)
        return f"takes {shown}, but is called as {name}({', '.join(words)})"
    return ""


def _line_of(function: Callable[..., Any], place: str) -> str:
    """The line of a function if it is in the file that adds it; else the place that adds it."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    file = place.rpartition(":")[0]
    return f"{file}:{code.co_firstlineno}" if code is not None and code.co_filename == file else place
