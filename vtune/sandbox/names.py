"""What the names in code refer to, as far as imports and assignments show without running it.

Names are followed in the order of the code. A name with more than one possible meaning counts as unknown: if
it was changed in a block that may not run, or if functions read it and it was given two meanings.
A loop is read as if it ran once. All of this takes time linear in the length of the code.
"""

import ast
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Self

_UNBOUND = ""
"""Used instead of a meaning for a name that was not bound yet."""

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda


class Scope:
    """The names of a module, a class or a function, and their meanings: full names, or None if not known."""

    def __init__(self, outer: "Scope | None" = None, *, is_class: bool = False) -> None:
        self.outer = outer
        self.is_class = is_class
        self._now: dict[str, str | None] = {}
        """Meanings at the current place in the code."""
        self._anywhere: dict[str, str | None] = {}
        """Meanings that hold everywhere, for use in functions, which may run at any time."""
        self._blocks: list[dict[str, str | None]] = []
        """For each open block, what its names meant before it."""

    def copy(self) -> Self:
        """A copy that can be bound independently."""
        other = type(self)(self.outer, is_class=self.is_class)
        other._now, other._anywhere = dict(self._now), dict(self._anywhere)
        return other

    def meaning(self, name: str) -> str | None:
        """What a name means at the current place in the code."""
        if name in self._now:
            return self._now[name]
        scope = self.outer
        while scope is not None:
            if name in scope._anywhere:
                return scope._anywhere[name]
            scope = scope.outer
        return None

    def known(self) -> set[str]:
        """The names that have a known meaning, now or at some other place."""
        return {name for names in (self._now, self._anywhere) for name, meaning in names.items() if meaning}

    def bind(self, name: str, meaning: str | None, *, imported: bool = False) -> None:
        """Give a name a meaning; the meaning from an import is assumed to hold in every function."""
        if self._blocks:
            self._blocks[-1].setdefault(name, self._now.get(name, _UNBOUND))
        self._now[name] = meaning
        alone = imported or self._anywhere.get(name, meaning) == meaning
        self._anywhere[name] = meaning if alone else None

    def bind_to_anything(self, names: Iterable[str]) -> None:
        """Mark names that code may have bound that was not read."""
        unknown = dict.fromkeys(names)
        self._now |= unknown
        self._anywhere |= unknown

    @contextmanager
    def block(self) -> Iterator[None]:
        """What is bound inside the block may or may not be bound after it."""
        self._blocks.append({})
        yield
        for name, before in self._blocks.pop().items():
            if self._blocks:
                self._blocks[-1].setdefault(name, before)
            if before not in (_UNBOUND, self._now[name]):
                self._now[name] = None


class Reader:
    """Reads one module and records the full names that it uses."""

    def __init__(self, known: frozenset[str]) -> None:
        """`known` are the full names to follow, with all their prefixes; `()` stands for a call."""
        self._known = known | {"importlib", "importlib.import_module"}
        self._used: set[str] = set()
        self._definitions: list[tuple[Definition, Scope]] = []
        """Bodies to read once everything around them has been read, each with the scope that it sees."""
        self._shared: set[str] = set()
        """Names that functions bind in other scopes, at an unknown time."""

    def read(self, tree: ast.Module, scope: Scope) -> set[str]:
        """The known names that the code uses; `scope` is updated with the meanings of its own names.

        Raises:
            RecursionError: If blocks are nested too deeply.
        """
        self._shared = _shared(tree)
        for name in self._shared:
            scope.bind(name, None)
        self._statements(tree.body, scope)
        for definition, outer in self._definitions:  # grows during the loop
            self._body(definition, outer)
        return self._used

    def _body(self, node: Definition, outer: Scope) -> None:
        scope = Scope(outer, is_class=isinstance(node, ast.ClassDef))
        if not isinstance(node, ast.ClassDef):
            given = node.args
            for arg in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg):
                if arg is not None:
                    scope.bind(arg.arg, None)
        if isinstance(node, ast.Lambda):
            self._expressions([node.body], scope)
        else:
            self._statements(node.body, scope)

    def _define(self, node: Definition, scope: Scope) -> None:
        """Queue a body for later; definitions inside a class do not see the names of the class."""
        seen = scope.outer if scope.is_class else scope
        assert seen is not None
        self._definitions.append((node, seen))

    def _block(self, body: list[ast.stmt], scope: Scope) -> None:
        with scope.block():
            self._statements(body, scope)

    def _statements(self, body: list[ast.stmt], scope: Scope) -> None:
        for node in body:
            self._statement(node, scope)

    def _statement(self, node: ast.stmt, scope: Scope) -> None:
        match node:
            case ast.Import() | ast.ImportFrom():
                self._import(node, scope)
            case ast.Assign(targets=targets, value=value):
                self._assign(targets, value, scope)
            case ast.AnnAssign(value=ast.expr() as value):
                self._expressions([node.annotation], scope)
                self._assign([node.target], value, scope)
            case ast.AugAssign():
                self._expressions([node.value], scope)
                self._bind(node.target, None, scope)
            case ast.Delete(targets=targets):
                for target in targets:
                    self._bind(target, None, scope)
            case ast.If():
                self._if(node, scope)
            case ast.While():
                self._expressions([node.test], scope)
                self._block(node.body, scope)
                self._block(node.orelse, scope)
            case ast.For() | ast.AsyncFor():
                self._expressions([node.iter], scope)
                with scope.block():
                    self._bind(node.target, None, scope)
                    self._statements(node.body, scope)
                self._block(node.orelse, scope)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    self._expressions([item.context_expr], scope)
                    if item.optional_vars is not None:
                        self._bind(item.optional_vars, None, scope)
                self._statements(node.body, scope)
            case ast.Try() | ast.TryStar():
                self._try(node, scope)
            case ast.Match():
                self._match(node, scope)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                body = set(node.body)
                self._expressions((part for part in ast.iter_child_nodes(node) if part not in body), scope)
                scope.bind(node.name, None)
                self._define(node, scope)
            case _:
                self._expressions(ast.iter_child_nodes(node), scope)

    def _if(self, node: ast.If, scope: Scope) -> None:
        # A long chain of `elif` is nested in the tree, but must not lead to nested calls here.
        while True:
            self._expressions([node.test], scope)
            self._block(node.body, scope)
            match node.orelse:
                case [ast.If() as following]:
                    node = following
                case orelse:
                    self._block(orelse, scope)
                    return

    def _try(self, node: ast.Try | ast.TryStar, scope: Scope) -> None:
        self._block([*node.body, *node.orelse], scope)
        for handler in node.handlers:
            with scope.block():
                if handler.type is not None:
                    self._expressions([handler.type], scope)
                if handler.name is not None:
                    scope.bind(handler.name, None)
                self._statements(handler.body, scope)
        self._statements(node.finalbody, scope)

    def _match(self, node: ast.Match, scope: Scope) -> None:
        self._expressions([node.subject], scope)
        for case in node.cases:
            with scope.block():
                for part in ast.walk(case.pattern):
                    name = getattr(part, "rest" if isinstance(part, ast.MatchMapping) else "name", None)
                    if name is not None:
                        scope.bind(name, None)
                self._expressions([case.pattern, *([case.guard] if case.guard else [])], scope)
                self._statements(case.body, scope)

    def _import(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                meaning = self._use(alias.name)
                if alias.asname is None:
                    top = alias.name.partition(".")[0]
                    scope.bind(top, self._follow("", top), imported=True)
                else:
                    scope.bind(alias.asname, meaning, imported=True)
            return
        module = self._use(node.module) if node.module and not node.level else None
        for alias in node.names:
            if alias.name == "*":
                for name in self._members(module):
                    scope.bind(name.rpartition(".")[2], name, imported=True)
            else:
                meaning = self._follow(module, f".{alias.name}")
                scope.bind(alias.asname or alias.name, meaning, imported=True)
                self._used.update([meaning] if meaning else [])

    def _members(self, module: str | None) -> list[str]:
        return [name for name in self._known if name.rpartition(".")[0] == module and "(" not in name]

    def _assign(self, targets: list[ast.expr], value: ast.expr, scope: Scope) -> None:
        meaning = self._expressions([value], scope).get(value)
        for target in targets:
            self._bind(target, meaning, scope)

    def _bind(self, target: ast.expr, meaning: str | None, scope: Scope) -> None:
        """Bind a name, or all names in a tuple, whose meanings are unknown."""
        if isinstance(target, ast.Name):
            scope.bind(target.id, None if target.id in self._shared else meaning)
            return
        self._expressions([target], scope)
        for part in ast.walk(target):
            if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load):
                scope.bind(part.id, None)

    def _expressions(self, roots: Iterable[ast.AST], scope: Scope) -> dict[ast.AST, str]:
        """Record what expressions use; return the known meanings in them."""
        # No recursion, which a long sum would exhaust: list parents first, then go backwards.
        nodes = list(roots)
        own = set()
        for node in nodes:  # grows during the loop
            if isinstance(node, ast.Lambda):
                self._define(node, scope)
                nodes.append(node.args)
                continue
            if isinstance(node, ast.Name):
                if not isinstance(node.ctx, ast.Load):
                    own.add(node.id)  # of a comprehension, or bound within the expression
                continue
            nodes.extend(ast.iter_child_nodes(node))
        meanings: dict[ast.AST, str] = {}
        for node in reversed(nodes):
            if isinstance(node, ast.Name):
                meaning = None if node.id in own else scope.meaning(node.id)
            elif isinstance(node, (ast.Attribute, ast.Call, ast.NamedExpr)):
                meaning = self._meaning(node, meanings)
            else:
                continue
            if meaning is not None:
                meanings[node] = meaning
        self._used.update(meanings.values())
        for node in nodes:
            if isinstance(node, ast.NamedExpr):
                self._bind(node.target, meanings.get(node.value), scope)
        return meanings

    def _meaning(
        self, node: ast.Attribute | ast.Call | ast.NamedExpr, meanings: dict[ast.AST, str]
    ) -> str | None:
        """What an expression means, if the meanings of its parts are known."""
        match node:
            case ast.Attribute(value=value, attr=attr):
                return self._follow(meanings.get(value), f".{attr}")
            case ast.NamedExpr(value=value):
                return meanings.get(value)
            case ast.Call(func=ast.Name("getattr"), args=[value, ast.Constant(str(attr)), *_]):
                return self._follow(meanings.get(value), f".{attr}")
            case ast.Call(func=ast.Name("__import__"), args=[ast.Constant(str(module)), *_]):
                return self._use(module)
            case ast.Call(func=function, args=[ast.Constant(str(module)), *_]) if (
                meanings.get(function) == "importlib.import_module"
            ):
                return self._use(module)
            case ast.Call(func=function):
                return self._follow(meanings.get(function), "()")

    def _use(self, name: str) -> str | None:
        """Record a dotted name, part by part, as far as it is known; return it if all of it is known."""
        top, *parts = name.split(".")
        meaning = self._follow("", top)
        for part in parts:
            if meaning is None:
                return None
            self._used.add(meaning)
            meaning = self._follow(meaning, f".{part}")
        self._used.update([meaning] if meaning else [])
        return meaning

    def _follow(self, owner: str | None, part: str) -> str | None:
        """The full name of a part of something; None if it is unknown."""
        name = None if owner is None else f"{owner}{part}"
        return name if name in self._known else None


def _shared(tree: ast.Module) -> set[str]:
    """The names declared `global` or `nonlocal`."""
    names = set()
    nodes: list[ast.AST] = [tree]
    for node in nodes:  # grows during the loop
        if isinstance(node, (ast.Global, ast.Nonlocal)):
            names.update(node.names)
        for part in ("body", "handlers", "cases", "orelse", "finalbody"):
            nodes.extend(getattr(node, part, ()))
    return names
