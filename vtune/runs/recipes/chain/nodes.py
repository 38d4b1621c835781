"""The recipes of a walk: those that ship, and a user's own in their place."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vtune.config import load_recipe, read_values
from vtune.errors import RecipeError
from vtune.kinds import kind_of
from vtune.runs.curate.recipe import DataRecipe, PassRate
from vtune.runs.evaluate.groups import Group
from vtune.runs.evaluate.suite import AgentRecipe, EvalSuite
from vtune.runs.recipes.chain.headers import Command, commands_of
from vtune.runs.recipes.shipped import find_shipped, shipped_recipes
from vtune.runs.train.rl_recipe import RLRecipe
from vtune.runs.train.sft_recipe import SFTRecipe
from vtune.sections import Strict

KINDS: dict[str, type[Strict]] = {
    "data": DataRecipe,
    "sft": SFTRecipe,
    "rl": RLRecipe,
    "eval": EvalSuite,
    "agent": AgentRecipe,
    "group": Group,
}
"""Kind -> the class that a file is read into; a sweep is read with the recipe that it varies."""


@dataclass(frozen=True, slots=True)
class Node:
    """A recipe, data recipe, suite or sweep."""

    kind: str
    name: str
    path: Path
    recipe: Any
    """What it was read into; for a sweep, the mapping in the file."""
    commands: tuple[Command, ...]

    @property
    def title(self) -> str:
        """As listed by `vtune recipes list`."""
        return f"{self.kind}/{self.name}"

    @property
    def prepared(self) -> Path:
        """The value of `{prepared}` in a sweep: each sweep prepares in its own folder."""
        return Path("prepared") / self.title

    def reads(self) -> list[str]:
        """Files and folders that it names, and the policies that its header evaluates."""
        if self.kind == "data":
            files = [file for source in self.recipe.used.values() for file in source.files]
            models = [spec.model for spec in self.recipe.filters if isinstance(spec, PassRate)]
            return [*files, *models]
        if self.kind == "eval":
            models = [model for c in self.commands if (model := c.value("--model")) is not None]
            return [*self.recipe.data, *models]
        return [] if self.kind in ("sweep", "agent", "group") else [*self.recipe.data, self.recipe.model]

    def runs(self) -> list[Command]:
        """The commands in its header that actually run it."""
        option = {"sft": "--recipe", "rl": "--recipe", "eval": "--suite"}.get(self.kind)
        verb = "curate" if self.kind == "data" else self.kind
        found = [c for c in self.commands if c.begins(verb) and "--dry-run" not in c.options]
        if option is None:
            return [c for c in found if c.words[1:2] == (self.name,)]
        return [c for c in found if c.value(option) in (self.name, self.path.name)]


@dataclass(frozen=True, slots=True)
class Chosen:
    """The recipes of a walk."""

    everything: list[Node]
    asked: list[Node]
    """Those to check."""
    replaced: list[Node]
    """Shipped recipes replaced by a file; recipes that read their output are checked too."""


def shipped_nodes() -> list[Node]:
    """All recipes that ship."""
    return [_node(entry.kind, entry.path) for entry in shipped_recipes()]


def chosen(names: Sequence[str], shipped: Sequence[Node]) -> Chosen:
    """The recipes of a walk over shipped ones and files.

    Args:
        names: Shipped names (`rl/codev`), files, or folders of files; none: all that ship. A file replaces
            the shipped recipe of its kind and name.
        shipped: From `shipped_nodes`.

    Raises:
        RecipeError: If a name is unknown, a file cannot be read, or two files have the same kind and name.
    """
    there = {node.title: node for node in shipped}
    asked: dict[str, Node] = {}
    own: dict[str, Node] = {}
    for name in names:
        path = Path(name)
        if path.is_dir():
            # The folder may also hold column maps.
            there_too = sorted({*path.rglob("*.yaml"), *path.rglob("*.yml")})
            files = [file for file in there_too if _kind(file) is not None]
            if not files:
                raise RecipeError(f"{path} holds no recipe", fix="name a folder of YAML files")
            found = [_node(None, file) for file in files]
        elif path.exists():
            found = [_node(None, path)]
        else:
            entry = find_shipped(name)
            title = f"{entry.kind}/{entry.name}"
            asked[title] = there[title]
            continue
        for node in found:
            _check_alone(node, own.get(node.title))
            own[node.title] = node
    asked |= own
    everything = there | asked
    replaced = [node for title, node in there.items() if everything[title] is not node]
    return Chosen([*everything.values()], [*(asked or there).values()], replaced)


def run_node(folder: Path) -> Node:
    """The recipe kept in a run folder, as a node of the walk named after the folder.

    Raises:
        RecipeError: If it is not a training recipe, or cannot be read.
    """
    path = folder / "recipe.yaml"
    kind = _kind(path)
    if kind not in ("sft", "rl"):
        raise RecipeError("not the recipe of a run", where=str(path), fix="name the folder of a run")
    return Node(kind, f"recipe.yaml of {folder}", path, load_recipe(path, KINDS[kind]), ())


def _check_alone(node: Node, other: Node | None) -> None:
    """Check that no other file has the same kind and name: one of the two would be ignored.

    Raises:
        RecipeError: If another file does.
    """
    if other is not None and other.path.resolve() != node.path.resolve():
        raise RecipeError(
            f"{other.path} and {node.path} are both {node.title}; recipes go by kind and file name",
            fix="rename one of them, or check them one at a time",
        )


def _node(kind: str | None, path: Path) -> Node:
    kind = kind or _kind(path)
    if kind is None:
        raise RecipeError(
            f"{path} is not a recipe, data recipe, suite or sweep",
            fix="start from one that ships: `vtune recipes copy NAME FILE`",
        )
    recipe = _mapping(path) if kind == "sweep" else load_recipe(path, KINDS[kind])
    return Node(kind, path.stem, path, recipe, tuple(commands_of(path)))


def _kind(path: Path) -> str | None:
    """Its kind, judging by its top-level keys; None if they fit no kind."""
    return kind_of(_mapping(path))


def _mapping(path: Path) -> dict[str, Any]:
    values = read_values(path, fix="start from one that ships: `vtune recipes copy NAME FILE`")
    if not isinstance(values, dict):
        raise RecipeError(f"{path} is not a YAML mapping", fix="start from one of `vtune recipes list`")
    return values


def suites_named(values: Any) -> Iterator[str]:
    """Names of the suites under `suite` or `suites` in a recipe, at any depth."""
    if isinstance(values, list | tuple):
        for item in values:
            yield from suites_named(item)
    if not isinstance(values, dict):
        return
    for key, value in values.items():
        if key == "suite" and isinstance(value, str):
            yield value
        elif key == "suites" and isinstance(value, list | tuple):
            yield from (entry for entry in value if isinstance(entry, str))
            yield from suites_named([entry for entry in value if not isinstance(entry, str)])
        elif key == "suites" and isinstance(value, dict):
            yield from value
        else:
            yield from suites_named(value)
