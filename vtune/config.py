"""Recipes: one YAML file, read strictly into one frozen object.

An unknown key, a duplicate key and a value of the wrong type are errors; all errors of a file
are shown at once, each with its line and, if a key is nearly right, the one that was meant.
"""

import copy
import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from importlib import resources
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, Field, ValidationError
from pydantic_core import ErrorDetails

from vtune.errors import DataError, RecipeError, nearest
from vtune.files.reading import read_text
from vtune.files.yaml_text import explained, read_yaml
from vtune.kinds import check_kind
from vtune.registry import or_yours
from vtune.sections import Named, Open, Strict
from vtune.uses import use

Loc = tuple[str | int, ...]


def _is_empty(files: tuple[str, ...]) -> bool:
    return not files


Uses = Annotated[tuple[str, ...], Field(exclude_if=_is_empty)]
"""Files with the user's own parts; relative to the recipe's folder, or, in `--set`, to the current one."""

RENAMED = {"advantage.refills": "advantage.dynamic_sampling_rounds"}
"""Old key -> its current name, both dotted."""

R = TypeVar("R", bound=Strict)


def shipped(package: str) -> dict[str, Path]:
    """The YAML files that ship in a folder, by name without suffix, e.g. `codev-tiny` in `recipes.rl`."""
    top, *below = package.split(".")
    root = Path(str(resources.files(f"vtune.{top}"))).joinpath(*below)
    return {path.stem: path for path in sorted(root.glob("*.yaml"))}


def find(name: str, package: str) -> Path:
    """The file that a name or a path refers to; a path wins if both exist.

    Args:
        name: A path (`my.yaml`, `dir/my.yaml`) or the name of a shipped file, with or without its kind
            (`codev`, `rl/codev`).
        package: `recipes.rl`, `recipes.sft`, `recipes.agents`, `data_recipes` or `eval_suites`.

    Raises:
        RecipeError: If neither exists; names the closest shipped file.
    """
    path = Path(name)
    if path.is_file():
        return path
    names = shipped(package)
    kind = package.split(".")[-1].split("_")[0]
    plain = name.removeprefix(f"{kind}/")
    if plain in names:
        return names[plain]
    beside = map(str, path.parent.glob("*.y*ml") if path.parent.is_dir() else ())
    known = f"give a YAML file, or one that ships in {package}: {', '.join(names) or 'none'}"
    near = get_close_matches(name, [*beside, *names], n=1)
    fix = f"did you mean `{near[0]}`?" if near else known
    raise RecipeError(f"{name!r} is neither a file nor the name of one that ships", fix=fix)


def load_recipe(path: Path, kind: type[R], overrides: Sequence[str] = (), *, given_by: str = "--set") -> R:
    """Read a YAML file, apply `key.path=value` overrides in order, and validate the result.

    Args:
        path: The file.
        kind: The type of recipe to read.
        overrides: `key.path=value`, the value in YAML.
        given_by: Where the overrides come from, for messages about them.

    Raises:
        RecipeError: Lists every problem found, each with its line (or its override).
    """
    root, values = _read(path)
    check_kind(path, {*values, *(re.split("[.=]", override)[0] for override in overrides)}, kind)
    lines = dict(_lines(root, path))
    first = [override for override in overrides if override.partition("=")[0] in kind.decides]
    given = {_apply(values, override) for override in first}
    if first or kind.decides:
        # A user's own part may decide what is filled in.
        _bring(kind, values, *_from(path, lines, given, given_by))
        values = kind.completed(values, {str(key) for key, *_ in given})
    given |= {_apply(values, override) for override in overrides if override not in first}
    _bring(kind, values, *_from(path, lines, given, given_by))
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        rows = []
        for problem in _own_problems(error.errors()):
            loc, section = _followed(kind, problem["loc"], values)
            # If a file does not have a section at all, only its name is wrong.
            over = any(
                loc[: len(g)] == g or (loc and loc not in lines and g[: len(loc)] == loc) for g in given
            )
            place = given_by if over else _place(path, lines, loc)
            # An error about a whole section may be caused by any of its keys.
            inside = any(loc and g[: len(loc)] == loc for g in given)
            if inside and not over and problem["type"] == "value_error":
                place += f", with {given_by}"
            rows.append((0 if over else _line(lines, loc), f"  {place}: {_explain(section, loc, problem)}"))
        rows.sort(key=lambda row: row[0])  # pydantic lists them in the order of a section's keys
        raise RecipeError(f"{len(rows)} problem(s) in {path}\n" + "\n".join(row for _, row in rows)) from None


def _own_problems(found: list[ErrorDetails]) -> list[ErrorDetails]:
    """Problems not caused by another one: pydantic drops an invalid item, then finds its list too short."""
    places = [problem["loc"] for problem in found]

    def follows(problem: ErrorDetails) -> bool:
        own = problem["loc"]
        within = (place for place in places if len(place) > len(own) and place[: len(own)] == own)
        return problem["type"] == "too_short" and any(within)

    return [problem for problem in found if not follows(problem)]


def _from(path: Path, lines: dict[Loc, int], given: set[Loc], given_by: str) -> tuple[Path, str]:
    """(the folder to which paths in `uses` are relative, the place of that key)."""
    if any(loc[:1] == ("uses",) for loc in given):
        return Path(), given_by
    return path.parent, _place(path, lines, ("uses",))


def _bring(kind: type[Strict], values: dict[str, Any], base: Path, place: str) -> None:
    """Load the files that a recipe names under `uses`, so that the names of their parts are known.

    Args:
        kind: Type of the recipe; if it has no `uses`, nothing happens.
        values: Values of the recipe; the paths in it become absolute.
        base: Folder for relative paths.
        place: Location of `uses`, for messages.

    Raises:
        RecipeError: If a file cannot be used.
    """
    files = values.get("uses")
    reads = "uses" in kind.model_fields or kind.model_config.get("extra") == "ignore"
    if reads and isinstance(files, list) and all(isinstance(file, str) for file in files):
        values["uses"] = [str((base / file).resolve()) for file in files]
        try:
            use(values["uses"])
        except RecipeError as error:
            raise RecipeError(error.what, where=error.where or place, fix=error.fix) from None


def recipe_keys(path: Path) -> list[str]:
    """The top-level keys of a recipe, whatever its kind.

    Raises:
        RecipeError: If the file has none.
    """
    return list(_read(path)[1])


def read_values(path: Path, *, fix: str = "") -> Any:
    """The value of a YAML file written by a run; None if it is empty.

    Raises:
        DataError: If it cannot be read, or is not YAML, with its line.
    """
    try:
        return _document(path)[1]
    except RecipeError as error:
        raise DataError(error.what, where=error.where, fix=fix or error.fix) from None


def _read(path: Path) -> tuple[yaml.MappingNode, dict[str, Any]]:
    """A file with one mapping: its nodes, which know their lines, and its values."""
    root, values = _document(path)
    if not isinstance(root, yaml.MappingNode):
        raise RecipeError(f"{path} is not a YAML mapping", fix="start from one of `vtune recipes list`")
    return root, values


def _document(path: Path) -> tuple[yaml.Node | None, Any]:
    try:
        return read_yaml(read_text(path))
    except FileNotFoundError:
        raise RecipeError(f"no recipe at {path}", fix="`vtune recipes list` shows what ships") from None
    except OSError as error:
        raise RecipeError(f"cannot read {path}: {error.strerror}", fix="give a YAML file") from None
    except yaml.YAMLError as error:
        raise _not_yaml(path, error) from None
    except UnicodeDecodeError as error:
        if error.object.startswith(b"PAR1"):
            raise RecipeError(
                f"{path} is a Parquet file, not a recipe",
                fix="name it in a recipe; `vtune recipes list` shows what ships",
            ) from None
        raise RecipeError(
            f"not UTF-8: {error.reason}", where=f"{path}, byte {error.start}", fix="save it as UTF-8"
        ) from None


def _not_yaml(path: Path, error: yaml.YAMLError) -> RecipeError:
    """What is wrong with a document, with its line."""
    syntax = "check indentation, brackets, quotes and colons in this line and the one before"
    what, fix = explained(error, syntax)
    mark = getattr(error, "problem_mark", None)
    return RecipeError(what, where=str(path) if mark is None else f"{path}:{mark.line + 1}", fix=fix)


def override(key: str, value: Any) -> str:
    """A setting read from YAML, as an override for `load_recipe`."""
    # YAML's own writer: it gives floats the dot without which they would be read as text.
    return f"{key}={yaml.safe_dump(value, default_flow_style=True, width=inf)}"


def dump_recipe(recipe: Strict) -> str:
    """The recipe as YAML, with every field in file order, as a run writes it next to its output."""
    values = recipe.model_dump(mode="json")
    text: str = yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
    # PyYAML does not escape this line break, and would read it back as two characters.
    return yaml.safe_dump(values, sort_keys=False) if "\x85" in text else text


def with_new_names(values: Any) -> Any:
    """The values of a recipe stored by a run, with renamed keys under their current names."""
    found = copy.deepcopy(values)
    for old, new in RENAMED.items():
        (old_section, old_key), (new_section, new_key) = old.split("."), new.split(".")
        section = found.get(old_section) if isinstance(found, dict) else None
        if isinstance(section, dict) and old_key in section:
            found.setdefault(new_section, {})[new_key] = section.pop(old_key)
    return found


def _lines(node: yaml.Node, path: Path, loc: Loc = ()) -> Iterator[tuple[Loc, int]]:
    """(location, 1-based line) of every key and item; a duplicate key is an error."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.value in seen:
                raise RecipeError(
                    f"key `{key.value}` is given twice", where=f"{path}:{line}", fix="remove one"
                )
            seen.add(key.value)
            yield (*loc, key.value), line
            yield from _lines(value, path, (*loc, key.value))
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield (*loc, index), item.start_mark.line + 1
            yield from _lines(item, path, (*loc, index))


def _apply(values: dict[str, Any], override: str) -> Loc:
    """Set one `key.path=value`; the schema validates key and value afterwards."""
    path, sign, text = override.partition("=")
    if not sign or not path:
        lacking = "key before its `=`" if sign else "`=`"
        raise RecipeError(f"override {override!r} has no {lacking}", fix="write it as key.path=value")
    *parents, last = path.split(".")
    try:
        value = read_yaml(text)[1]
    except yaml.YAMLError as error:
        what, fix = explained(error, "check its brackets, quotes and colons")
        raise RecipeError(f"override {override[:200]!r}: {what}", fix=fix) from None
    node: Any = values
    place: list[str | int] = []
    for parent in parents:
        key: Any = _key(node, parent, override)
        child = node[key] if isinstance(node, list) else node.setdefault(key, {})
        if not isinstance(child, dict | list):
            section = ".".join(map(str, [*place, key]))
            if child is None:
                what, fix = "null here", f"give all of it: {section}={{key: value, ...}}"
            else:
                what, fix = "not a section", f"set `{section}` itself"
            raise RecipeError(f"override {override!r}: `{parent}` is {what}", fix=fix)
        node = child
        place.append(key)
    key = _key(node, last, override)
    node[key] = value
    return (*place, key)


def _key(node: dict[str, Any] | list[Any], name: str, override: str) -> str | int:
    """A component of an override's path as a key of a section, or as an index into a list, counted from 0."""
    if isinstance(node, dict):
        return name
    if not name.isdecimal() or int(name) >= len(node):
        raise RecipeError(
            f"override {override!r}: `{name}` is not one of the {len(node)} items",
            fix="give the number of an item, counted from 0",
        )
    return int(name)


def _line(lines: dict[Loc, int], loc: Loc) -> int:
    """The line of a key, or of the section that lacks it; 0 if neither has one."""
    return next((lines[loc[:end]] for end in range(len(loc), 0, -1) if loc[:end] in lines), 0)


def _place(path: Path, lines: dict[Loc, int], loc: Loc) -> str:
    return f"{path.name}:{line}" if (line := _line(lines, loc)) else path.name


def _explain(section: type[BaseModel], loc: Loc, problem: ErrorDetails) -> str:
    """A problem in words for people; `section` is the one that contains it."""
    key = ".".join(map(str, loc))
    error, message = problem["type"], problem["msg"]
    if error == "union_tag_invalid":
        facts = problem["ctx"]
        name, tags = facts["discriminator"].strip("'"), facts["expected_tags"].replace("'", "").split(", ")
        return f"unknown {name} `{facts['tag']}` in `{key}`; {or_yours(nearest(facts['tag'], tags))}"
    if error == "union_tag_not_found":
        name = problem["ctx"]["discriminator"].strip("'")
        return f"`{key}.{name}`: field required"
    if error == "tuple_type":
        return f"`{key}`: write a list, e.g. [a, b]"
    if error == "too_short":
        return f"`{key}`: give at least {problem['ctx']['min_length']}, not {problem['ctx']['actual_length']}"
    if error in ("model_type", "dict_type", "model_attributes_type"):
        return f"`{key or 'the file'}`: write keys with values, e.g. {{key: value}}"
    if error == "unknown_key":  # from a section based on a table of parts; its message lists the known names
        return f"unknown key `{key}`; {message}"
    if error != "extra_forbidden":
        message = message.removeprefix("Value error, ")
        return f"`{key}`: {message[:1].lower()}{message[1:]}" if key else message
    if key in RENAMED:
        return f"unknown key `{key}`; it is called `{RENAMED[key]}` now"
    known = [*section.model_fields, *(section.sections() if issubclass(section, Open) else ())]
    near = get_close_matches(str(loc[-1]), known, n=1)
    hint = f"did you mean `{near[0]}`?" if near else f"known here: {', '.join(known) or 'none'}"
    if issubclass(section, Open):
        hint = or_yours(hint)
    return f"unknown key `{key}`; {hint}"


def _followed(kind: type[BaseModel], loc: Loc, values: Any) -> tuple[Loc, type[BaseModel]]:
    """A location as written in the file, and the section that contains its last component.

    If a section has alternatives, pydantic inserts the tag of the chosen one into the location.
    """
    inside = [kind]
    written: list[str | int] = []
    holder, named = kind, None
    for name in loc:
        if name == "[key]":  # pydantic's mark for an error in the key itself, not in its value
            continue
        tagged = [section for section in inside if len(inside) > 1 and name in _tags(section)]
        if tagged:
            inside = tagged
            continue
        written.append(name)
        holder = inside[0]
        field = holder.model_fields.get(str(name))
        values = _child(values, name)
        if field is not None:
            inside = list(_sections(field.annotation)) or inside
            named = next(_names(field.annotation), None)
        elif issubclass(holder, Open):
            inside = [holder.sections().get(str(name), holder)]
        if named is not None and (section := named.of(values)) is not None:
            inside, named = [section], None
    return tuple(written), holder


def _sections(annotation: Any) -> Iterator[type[BaseModel]]:
    """Every section that a value of this type may be or contain."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _sections(part)


def _names(annotation: Any) -> Iterator[Named]:
    for part in get_args(annotation):
        if isinstance(part, Named):
            yield part
        yield from _names(part)


def _child(values: Any, name: str | int) -> Any:
    """The value under a key, or at an index; None if there is none."""
    if isinstance(values, dict):
        return values.get(name)
    return values[name] if isinstance(values, list) and isinstance(name, int) and name < len(values) else None


def _tags(section: type[BaseModel]) -> set[Any]:
    literals = (field.annotation for field in section.model_fields.values())
    return {tag for literal in literals if get_origin(literal) is Literal for tag in get_args(literal)}
