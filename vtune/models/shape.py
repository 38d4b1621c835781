"""How large a model is, from its configuration alone: parameter counts and widths, without weights."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vtune.errors import DataError
from vtune.models.families import FAMILIES, family_of
from vtune.models.families.shape import Shape


def shape_of(config: Mapping[str, Any]) -> Shape:
    """The shape that a Hugging Face configuration describes.

    Args:
        config: `config.json` as a mapping; the language model's keys may be in `text_config` or on top.

    Raises:
        DataError: If a key is missing (the error names it), or the model's type has no family.
    """
    try:
        return family_of(str(config["model_type"])).shape(config)
    except KeyError as missing:
        raise DataError(f"the model's configuration has no {missing}", fix="give its shape by name") from None


def known_shapes() -> dict[str, Mapping[str, Any]]:
    """Published models of all families: name -> the widths in their `config.json`."""
    return {name: config for family in FAMILIES.values() for name, config in family.sizes.items()}


_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_SIZE = re.compile(r"(?<![0-9.])(\d+)b(?![a-z0-9])")


def known_name(name: str) -> str | None:
    """The known model that a name refers to, e.g. Qwen2.5-VL-7B for `models/codev-7b-sft`; None if none.

    No two known models have the same size, so the size alone decides, unless the name says another family.
    """
    sizes = set(_SIZE.findall(name.lower().rsplit("/", 1)[-1]))
    said = [(family.sizes, family.named(name)) for family in FAMILIES.values()]
    silent = all(one is None for _, one in said)
    found = [
        known
        for known_sizes, one in said
        for known in known_sizes
        if (silent or one) and known.lower().rsplit("-", 1)[1].removesuffix("b") in sizes
    ]
    return found[0] if len(found) == 1 else None


def find_shape(model: str, given: str | None) -> tuple[Shape, str] | None:
    """The shape of a model and where it was found; None if nothing identifies it.

    Args:
        model: As in the recipe: a folder or a hub name.
        given: The name of a known model, which takes precedence.

    Raises:
        DataError: If `given` is not a known model, or a `config.json` lacks a size.
    """
    if given is not None:
        known = known_shapes()
        if given not in known:
            raise DataError(f"no shape is known by the name {given!r}", fix=f"known: {', '.join(known)}")
        return shape_of(known[given]), f"{given}, as asked"
    config = local_config(model)
    if config is not None:
        return shape_of(_filled(config.parent)), f"{config}"
    name = known_name(model)
    return (shape_of(known_shapes()[name]), f"{name}, by the name {model!r}") if name else None


def local_config(model: str) -> Path | None:
    """`config.json` of a model folder, or of a hub model in the cache; None if it is not on this machine."""
    if (Path(model) / "config.json").is_file():
        return Path(model) / "config.json"
    if Path(model).is_dir() or not _HUB_NAME.fullmatch(model):
        return None
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(model, "config.json")
    return Path(found) if isinstance(found, str) else None


def _filled(folder: Path) -> Mapping[str, Any]:
    """The configuration of a folder, with its class's defaults for missing keys."""
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError, json.JSONDecodeError) as error:
        raise DataError(f"{folder / 'config.json'} cannot be read: {error}") from None
    values: dict[str, Any] = config.to_dict()
    return values
