"""The `loss` section of a recipe: `algorithm` decides which keys it has."""

from typing import Annotated, Any

from pydantic import BeforeValidator, SerializeAsAny, ValidationError
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from vtune.errors import nearest
from vtune.update.losses.grpo import NAME as DEFAULT
from vtune.update.losses.loss import LOSSES, PolicyLoss

__all__ = ["DEFAULT", "LossSection", "read_loss"]


def read_loss(values: Any) -> Any:
    """The section of the algorithm that `values` name, or of `DEFAULT` if they name none.

    `DEFAULT` is what recipes meant before there was a choice. Keys of other algorithms may be null, as they
    are in older run folders.

    Args:
        values: A section as read from YAML; anything but a mapping is returned unchanged.

    Raises:
        ValidationError: With every key that is missing, wrong or without effect.
    """
    if not isinstance(values, dict):
        return values
    given = {"algorithm": DEFAULT} | values
    name = given["algorithm"]
    if not isinstance(name, str) or name not in LOSSES:
        text = f"there is no loss `{name}`; {LOSSES.meant(str(name))}"
        problem = PydanticCustomError("unknown_loss", text)
        raise _invalid([{"type": problem, "loc": ("algorithm",), "input": name}])
    section = LOSSES[name].section
    other = {key for loss in LOSSES.values() for key in loss.section.model_fields} - {*section.model_fields}
    try:
        return section.model_validate(
            {key: value for key, value in given.items() if key not in other or value is not None}
        )
    except ValidationError as error:
        raise _invalid([_explained(problem, name) for problem in error.errors()]) from None


def _explained(problem: ErrorDetails, algorithm: str) -> InitErrorDetails:
    """A problem in words that say which algorithm does not know, or needs, the key."""
    kind, text, loc = problem["type"], problem["msg"], problem["loc"]
    if len(loc) == 1 and kind == "extra_forbidden":
        key = str(loc[0])
        having = [name for name, loss in LOSSES.items() if key in loss.section.model_fields]
        if having:
            kind = "key_without_effect"
            text = f"has no effect with algorithm {algorithm}, only with {', '.join(having)}: leave it out"
        else:
            kind, text = "unknown_key", nearest(key, LOSSES[algorithm].section.model_fields)
    elif len(loc) == 1 and (kind == "missing" or problem["input"] is None):
        kind, text = "missing", f"algorithm {algorithm} needs it"
    return {
        "type": PydanticCustomError(kind, text, problem.get("ctx")),
        "loc": loc,
        "input": problem["input"],
    }


def _invalid(problems: list[InitErrorDetails]) -> ValidationError:
    return ValidationError.from_exception_data("loss", problems)


LossSection = Annotated[SerializeAsAny[PolicyLoss], BeforeValidator(read_loss)]
"""The type of the field `loss`."""
