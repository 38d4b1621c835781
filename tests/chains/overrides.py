"""What a chain may change in a shipped recipe: model, paths, sizes, counts, and what small machines lack.

All other keys must stay as shipped; otherwise the chain would not prove that the recipe works.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from vtune.config import load_recipe
from vtune.runs.curate.recipe import DataRecipe
from vtune.runs.evaluate.suite import EvalSuite
from vtune.runs.recipes.shipped import find_shipped
from vtune.runs.train.rl_recipe import RLRecipe
from vtune.runs.train.sft_recipe import SFTRecipe

KINDS = {"data": DataRecipe, "sft": SFTRecipe, "rl": RLRecipe, "eval": EvalSuite}
"""Kind of recipe, as in `vtune recipes list` -> the class into which it is read."""

_MACHINE = (
    "dtype", "threads", "images.max_pixels", "sandbox.seconds", "rollout.max_batch", "rollout.max_tokens",
)  # fmt: skip
"""Keys that depend on the machine; `sandbox.seconds` is among them because a test machine may be busy."""

ALLOWED: Mapping[str, tuple[str, ...]] = {
    "data": (
        "sources.*.files",
        "filters.*.judge.base_url",
        "filters.*.model",
        "filters.*.engine",  # vLLM may not be installed
        "filters.*.images.min_pixels",
        "filters.*.at_least",  # a count: tests have few rows
        *(f"filters.*.{key}" for key in _MACHINE),
    ),
    "sft": (
        "model",
        "data",
        "epochs",
        "batch_size",
        "max_tokens",
        "images.max_pixels",
        "update.dtype",
        "update.threads",
        "update.micro_tokens",
        "update.warmup_steps",  # longer than a short run
    ),
    "rl": (
        "model",
        "data",
        "steps",
        "prompts_per_step",
        "group_size",
        "rollout.engine",  # as above
        "reward.judge.base_url",
        "tools.text_search.index",
        "tools.text_search.summariser.base_url",
        "images.min_pixels",
        "images.max_pixels",
        "sandbox.seconds",
        "rollout.max_batch",
        "rollout.max_tokens",
        "trajectories_every",
        "update.dtype",
        "update.threads",
        "update.micro_tokens",
    ),
    "eval": (
        "data",
        "published.md5",  # tests make their own files
        "published.rows",
        "images.min_pixels",
        "reward.judge.base_url",
        "tools.text_search.summariser.base_url",
        "tools.text_search.web.api_key_env",  # there may be no web access: recorded answers are used
        "tools.text_search.web.recorded",
        "tools.text_search.web.blocked",  # filled in from a suite's `blocked_hosts` when it is run
        "tools.web.blocked",
        *_MACHINE,
    ),
}
"""Kind -> keys; `*` matches one part of a dotted key."""


def settings(kind: str, **values: object) -> list[str]:
    """`--set` arguments for a recipe of a kind; `__` stands for a dot.

    Raises:
        AssertionError: If a chain may not change one of the keys.
    """
    words = []
    for name, value in values.items():
        key = name.replace("__", ".")
        assert may_change(kind, key), f"a chain may not change {key} of a recipe of {kind}"
        words += ["--set", f"{key}={value}"]
    return words


def check_unchanged(kind: str, name: str, resolved: Path) -> None:
    """Check that a run used the shipped recipe, except for what a chain may change.

    Args:
        kind: Kind of the recipe.
        name: Name of the recipe.
        resolved: The `recipe.yaml` or `suite.yaml` that the run wrote.

    Raises:
        AssertionError: If another key differs.
    """
    ships = load_recipe(find_shipped(f"{kind}/{name}").path, KINDS[kind]).model_dump(mode="json")
    ran = yaml.safe_load(resolved.read_text())
    changed = sorted(key for key in differing(ships, ran) if not may_change(kind, key))
    assert not changed, f"{resolved} differs from {kind}/{name} in {', '.join(changed)}"


def may_change(kind: str, key: str) -> bool:
    """Whether a chain may set a key."""
    patterns = (re.escape(allowed).replace(r"\*", r"[^.]+") for allowed in ALLOWED[kind])
    return any(re.fullmatch(pattern, key) for pattern in patterns)


def differing(a: Any, b: Any, prefix: str = "") -> Iterator[str]:
    """Dotted keys in which two values differ; items of lists of sections are numbered."""
    if isinstance(a, list) and isinstance(b, list) and any(isinstance(item, dict) for item in (*a, *b)):
        a, b = dict(enumerate(a)), dict(enumerate(b))
    if isinstance(a, dict) and isinstance(b, dict):
        for key in {**a, **b}:
            yield from differing(a.get(key), b.get(key), f"{prefix}{key}.")
    elif a != b:
        yield prefix.rstrip(".")
