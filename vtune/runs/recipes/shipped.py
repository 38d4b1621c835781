"""`vtune recipes`: the recipes that ship, by name."""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import resources
from pathlib import Path

from vtune.config import shipped
from vtune.errors import RecipeError
from vtune.files.writing import check_file_output, write_atomically

PACKAGES = {
    "sft": "recipes.sft",
    "rl": "recipes.rl",
    "sweep": "recipes.sweep",
    "data": "data_recipes",
    "eval": "eval_suites",
    "agent": "recipes.agents",
    "group": "eval_suites.groups",
}
"""Kind -> the package in `vtune` that its files ship in: the folder determines the kind of a file."""


LAUNCH = "launch"
"""Kind of the files that start vtune on a cluster; in `recipes/launch`, named by their full file names."""

_SENTENCE = re.compile(r"(?<!\bal)\.\s+(?=[A-Z0-9`])")
"""The boundary between two sentences."""


@dataclass(frozen=True, slots=True)
class Shipped:
    """A file that ships with vtune."""

    kind: str
    name: str
    path: Path
    about: str
    """First line of its header comment."""


def shipped_recipes() -> list[Shipped]:
    """Every recipe, data recipe and eval suite that ships, by kind and name."""
    return list(_all())


def shipped_files() -> list[Shipped]:
    """Every file that can be copied: the recipes, and the files that start vtune on a cluster."""
    return [*_all(), *_launch()]


def find_shipped(name: str) -> Shipped:
    """The file called `name`, or `kind/name` where two kinds share a name.

    Raises:
        RecipeError: If there is none, or more than one.
    """
    everything = shipped_files()
    found = [entry for entry in everything if name in (entry.name, f"{entry.kind}/{entry.name}")]
    if len(found) == 1:
        return found[0]
    full = [f"{entry.kind}/{entry.name}" for entry in found or everything]
    if found:
        raise RecipeError(f"{name!r} is the name of {len(found)} files", fix=f"say {' or '.join(full)}")
    near = get_close_matches(name, [*full, *(entry.name for entry in everything)], n=1)
    fix = f"did you mean `{near[0]}`?" if near else "`vtune recipes list` shows what ships"
    raise RecipeError(f"nothing called {name!r} ships with vtune", fix=fix)


def copy_recipe(name: str, target: Path) -> Path:
    """Copy a shipped file to a file or into a folder; return its new path.

    Raises:
        RecipeError: If nothing of that name ships, or the target exists.
    """
    source = find_shipped(name).path
    if target.is_dir():
        target = target / source.name
    check_file_output(target, option="target")
    if target.exists():
        raise RecipeError(f"{target} exists", fix="give another name, or remove it")
    write_atomically(target, source.read_bytes())
    return target


def _launch() -> Iterator[Shipped]:
    folder = Path(str(resources.files("vtune.recipes"))) / LAUNCH
    for path in sorted(folder.iterdir()):
        if path.suffix != ".md":
            yield Shipped(LAUNCH, path.name, path, _first_sentence(path))


def _all() -> Iterator[Shipped]:
    for kind, package in PACKAGES.items():
        for name, path in shipped(package).items():
            yield Shipped(kind, name, path, _first_sentence(path))


def _first_sentence(path: Path) -> str:
    """First sentence of the comment at the top of a file, over several lines if need be; empty if none."""
    lines = itertools.dropwhile(_is_shebang, path.read_text(encoding="utf-8").splitlines())
    prose = itertools.takewhile(lambda line: line.startswith("# ") and line[2] != " ", lines)
    text = " ".join(line.removeprefix("# ") for line in prose)
    return _SENTENCE.split(text, maxsplit=1)[0].removesuffix(".")


def _is_shebang(line: str) -> bool:
    return line.startswith("#!")
