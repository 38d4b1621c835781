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
"""A key at the top -> the kind of recipe that has it, in the order in which they are looked for."""
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
"""Keys that are unknown or missing in a recipe of the right kind, at most; ours. A mistyped one is both."""


def kind_of(keys: Iterable[str]) -> str | None:
    """The kind of recipe (`data`, `sft`, `rl`, `sweep`, `eval`, `agent`, `group`) with such keys on top."""
    there = set(keys)
    return next((kind for key, kind in _MARKS.items() if key in there), None)


def check_kind(path: Path, keys: Collection[str], schema: type[Strict]) -> None:
    """Check that a file is not a recipe of another kind, of which most keys would be unknown.

    Args:
        path: The file.
        keys: At its top, those that are given elsewhere (`--set`) among them.
        schema: What it is to be read into; one that reads a few keys of several kinds takes any.

    Raises:
        RecipeError: If it has the mark of another kind and not its own, and that is not the only difference.
    """
    wanted, found = kind_of(schema.model_fields), kind_of(keys)
    if wanted is None or found in (None, wanted) or schema.model_config.get("extra") == "ignore":
        return
    marks = {kind: key for key, kind in _MARKS.items()}
    # What a recipe does not say is filled in where one of its keys decides on others.
    filled = bool(schema.decides)
    needed = {key for key, field in schema.model_fields.items() if field.is_required() and not filled}
    odd = {*keys} - {*schema.model_fields} | needed - {*keys}
    if marks[wanted] not in keys and len(odd) > MISTYPED:
        raise RecipeError(
            f"{path} is {_CALLED[found]}: it has the key `{marks[found]}`, and no `{marks[wanted]}`",
            fix=f"give {_CALLED[wanted]}",
        )
