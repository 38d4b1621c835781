"""Files and folders between recipes: does something write what is read, and is it of the right kind?"""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from vtune.errors import VtuneError
from vtune.runs.recipes.chain.joins import Join
from vtune.runs.recipes.chain.nodes import run_node
from vtune.runs.recipes.chain.writers import Product, Workshop, unwritten

_LOCAL = re.compile(r"[./~]|(runs|models|data|checkpoints)/")
"""How a path begins; any other `owner/name` is a hub name."""
NOBODY = "nobody"
"""The writer of anything that nothing makes."""
_CHECKPOINT = re.compile(r"/checkpoints/[^/]+/?$")


def file_joins(reader: str, path: str, wanted: str, shop: Workshop) -> Iterator[Join]:
    """One join for each writer of a file that a recipe names.

    Args:
        reader: The recipe that names it.
        path: The file, or the folder of an index.
        wanted: `samples`, `traces` or `index`.
        shop: Knows who writes what.
    """
    writers = shop.writers(path)
    for product in writers:
        if product.kind == wanted:
            yield Join(product.by, reader, "file", f"{product.kind} {product.path}", path)
            continue
        why = f"{product.by} writes {product.kind} to this path, but {wanted} are read from it"
        yield Join(product.by, reader, "file", product.kind, f"{wanted} {path}", "break", why,
                   "name a file of the right kind")  # fmt: skip
    if not writers and Path(path).exists():
        yield Join("a file that is here", reader, "file", path, wanted)
    elif not writers:
        yield broken(NOBODY, reader, "file", f"{wanted} {path}", unwritten(path))


def policy_of(reader: str, model: str, shop: Workshop) -> tuple[Join, Product | None]:
    """The join of a recipe with the policy that it starts from, and the product that is this policy.

    Args:
        reader: The recipe that names it.
        model: Folder, run folder or hub name.
        shop: Knows who writes what.
    """
    # A run that starts from its own folder is refused, so any other writer of that folder is meant.
    writers = sorted(shop.writers(run_folder(model)), key=lambda product: product.by == reader)
    if writers and writers[0].by == reader:
        why = "the run begins with the folder that it writes itself, and no other run writes there"
        fix = "name the model or the run to begin with"
        return Join(reader, reader, "policy", writers[0].path, model, "break", why, fix), None
    if writers:
        return Join(writers[0].by, reader, "policy", writers[0].path, model), writers[0]
    if Path(model).exists():
        return _policy_here(reader, model)
    if _LOCAL.match(model) or model.count("/") != 1:
        return broken(NOBODY, reader, "policy", model, unwritten(model)), None
    return Join("the hub", reader, "policy", model, model), None


def _policy_here(reader: str, model: str) -> tuple[Join, Product | None]:
    """A folder on this machine; if it is a run, its own recipe says what the policy was taught."""
    join = Join("a folder that is here", reader, "policy", model, model)
    folder = Path(run_folder(model))
    if not (folder / "recipe.yaml").is_file():
        return join, None
    try:
        node = run_node(folder)
    except VtuneError as error:
        why = f"what {folder} was trained on is unknown: {said(error)}"
        return replace(join, level="note", why=why, fix=error.fix), None
    return replace(join, writer=node.title), Product(str(folder), "policy", node.title, node=node)


def run_folder(model: str) -> str:
    """The folder of the run that a checkpoint belongs to, relative to here; any other path unchanged."""
    folder = Path(_CHECKPOINT.sub("", model))
    # Once its starting point exists on this machine, a sweep names it by its absolute path.
    if folder.is_absolute() and folder.is_relative_to(Path.cwd()):
        return str(folder.relative_to(Path.cwd()))
    return _CHECKPOINT.sub("", model)


def broken(writer: str, reader: str, about: str, read: str, error: VtuneError) -> Join:
    """A join that fails with an error."""
    return Join(writer, reader, about, "", read, "break", said(error), error.fix)


def said(error: VtuneError) -> str:
    """The message of an error, on one line; for a list of rows, the first one."""
    lines = [line.strip() for line in error.what.splitlines() if line.strip()]
    return ": ".join(lines[:2]) + (f" ({error.where})" if error.where and len(lines) < 2 else "")
