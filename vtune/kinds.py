"""Which kind of recipe a file is, by its top-level keys."""

from collections.abc import Collection, Iterable
from pathlib import Path

from vtune.errors import RecipeError
from vtune.sections import Strict

_MARKS = {
    "sources": "data",
    "scorer": "eval",
    "variants": "sweep",
    "call_images": "agent",
    "members": "group",
    "rollout": "rl",
    "batch_size": "sft",
}
"""A top-level key -> the kind of recipe that has it, in the order in which they are checked."""
_CALLED = {
    "data": "a data recipe, for `vtune curate`",
    "eval": "a suite, for `vtune eval --suite`",
    "sweep": "a sweep, for `--sweep` beside the recipe that it varies",
    "agent": "an agent, for `--agent`",
    "group": "a group of suites, for `vtune eval --suite`",
    "rl": "a recipe for `vtune rl`",
    "sft": "a recipe for `vtune sft`",
}
MISTYPED = 2
"""Limit on the unknown or missing keys of a recipe of the right kind; ours. A misspelt key is both."""


def kind_of(keys: Iterable[str]) -> str | None:
    """The kind of recipe (`data`, `sft`, `rl`, `sweep`, `eval`, `agent`, `group`) with these keys on top."""
    there = set(keys)
    return next((kind for key, kind in _MARKS.items() if key in there), None)


def check_kind(path: Path, keys: Collection[str], schema: type[Strict]) -> None:
    """Check that a file is not a recipe of another kind, most of whose keys would be unknown.

    Args:
        path: The file.
        keys: Its top-level keys, including those given elsewhere (`--set`).
        schema: The type to read it as; one that reads a few keys of several kinds accepts any.

    Raises:
        RecipeError: If it has another kind's key but not its own, and that is not the only difference.
    """
    wanted, found = kind_of(schema.model_fields), kind_of(keys)
    if wanted is None or found in (None, wanted) or schema.model_config.get("extra") == "ignore":
        return
    marks = {kind: key for key, kind in _MARKS.items()}
    # Keys may be missing if the recipe has a key that decides how to fill them in.
    filled = bool(schema.decides)
    needed = {key for key, field in schema.model_fields.items() if field.is_required() and not filled}
    odd = {*keys} - {*schema.model_fields} | needed - {*keys}
    if marks[wanted] not in keys and len(odd) > MISTYPED:
        raise RecipeError(
            f"{path} is {_CALLED[found]}: it has the key `{marks[found]}`, and no `{marks[wanted]}`",
            fix=f"give {_CALLED[wanted]}",
        )
