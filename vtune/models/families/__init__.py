"""Families of vision-language models: one file each, with everything that vtune has to know about it.

Nothing here needs torch until a model is loaded.
"""

from typing import Any

from vtune.errors import DataError
from vtune.models.families.family import Family
from vtune.registry import Parts

FAMILIES: Parts[Family] = Parts("family", lambda family: family.about, Family)
"""`model_type` -> family."""


def family_of(model_type: str, model: str = "the model") -> Family:
    """The family of a model type.

    Args:
        model_type: As in `config.json`.
        model: The folder or hub name, for the error message.

    Raises:
        DataError: If there is no such family.
    """
    if model_type not in FAMILIES:
        raise DataError(
            f"{model} is a {model_type!r} model",
            fix=f"vtune trains {' and '.join(FAMILIES)} models; another family is one file with "
            f'FAMILIES.add("{model_type}", Family(…)), named under `uses`: see vtune/models/README.md',
        )
    return FAMILIES[model_type]


def family_of_model(model: Any) -> Family:
    """The family of a loaded model.

    Raises:
        DataError: If there is no such family.
    """
    return family_of(str(model.config.model_type))


def placeholders() -> tuple[str, ...]:
    """Tokens of all families that represent pictures, or surround them."""
    return tuple(dict.fromkeys(word for family in FAMILIES.values() for word in family.tokens.placeholders))
