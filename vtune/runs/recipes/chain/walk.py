"""`vtune recipes check`: from imports over curation and training to benchmarks and audits, join by join."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from vtune.runs.recipes.chain.data_joins import data_joins
from vtune.runs.recipes.chain.file_joins import NOBODY, run_folder
from vtune.runs.recipes.chain.joins import Join
from vtune.runs.recipes.chain.nodes import Node, chosen, shipped_nodes
from vtune.runs.recipes.chain.run_joins import Runs
from vtune.runs.recipes.chain.writers import Workshop, products_of

ORDER = ("data", "sft", "rl", "sweep", "eval", "agent", "group")
"""Kinds, in the order in which data flows through them."""


def check_joins(names: Sequence[str], *, shipped: Sequence[Node] | None = None) -> dict[str, Any]:
    """Walk over recipes and report whether each one reads what another recipe, or a command, writes.

    Nothing is downloaded, and no model is loaded: a few rows of ours in the published layouts pass through
    the code of imports, curation, prompts, verifiers and rewards. Main thread only (`math`).

    Args:
        names: Shipped names, files or folders; none: all that ship. A file replaces the shipped recipe of
            its kind and name; what it reads may be written by any recipe.
        shipped: From `shipped_nodes`, if they have already been read.

    Returns:
        `joins`, one mapping each: `writer`, `reader`, `about`, `written`, `read`, `level` (ok, note or
        break), `why` and `fix`; `breaks` and `notes`, their counts; `recipes`, those that were asked for.

    Raises:
        RecipeError: If a name is unknown, or a recipe cannot be read.
    """
    recipes = chosen(names, shipped_nodes() if shipped is None else shipped)
    titles = {node.title for node in recipes.asked}
    with TemporaryDirectory(prefix="vtune-check-") as folder:
        shop = Workshop(Path(folder), products_of(recipes.everything))
        before = Workshop(Path(folder), products_of(recipes.replaced))
        runs = Runs(recipes.everything, shop)
        lost = {node.title for node in recipes.everything if _writers(node, before)}
        near = [node for node in recipes.everything if _near(node, titles, shop, runs) or node.title in lost]
        near.sort(key=lambda node: (ORDER.index(node.kind), node.name))
        found = [join for node in near for join in _joins_of(node, shop, runs)]
    kept = [join for join in dict.fromkeys(found) if _concerns(join, titles, lost)]
    return {
        "recipes": sorted(titles),
        "breaks": sum(join.level == "break" for join in kept),
        "notes": sum(join.level == "note" for join in kept),
        "joins": [asdict(join) for join in kept],
    }


def _near(node: Node, titles: Collection[str], shop: Workshop, runs: Runs) -> bool:
    """Whether a recipe was asked for, or reads what one of those writes."""
    base = runs.base(node) if node.kind == "sweep" else None
    varied = base is not None and base.title in titles
    return node.title in titles or varied or bool(_writers(node, shop) & set(titles))


def _writers(node: Node, shop: Workshop) -> set[str]:
    """Who writes what a recipe reads."""
    return {product.by for path in node.reads() for product in shop.writers(run_folder(path))}


def _concerns(join: Join, titles: Collection[str], lost: Collection[str]) -> bool:
    """Whether one end of the join is a recipe that was asked for, or a part of it (a filter, a variant).

    Args:
        join: The join.
        titles: Titles of the recipes that were asked for.
        lost: Readers of replaced shipped recipes; the replacement may not write what they read.
    """
    reader, writer = join.reader.partition(":")[0], join.writer.partition(":")[0]
    return bool({reader, writer} & set(titles)) or (writer == NOBODY and reader in lost)


def _joins_of(node: Node, shop: Workshop, runs: Runs) -> Iterator[Join]:
    return data_joins(node, shop) if node.kind == "data" else runs.joins(node)
