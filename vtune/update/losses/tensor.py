"""The word `Tensor` in annotations of losses, without torch: who reads a recipe computes no loss."""

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor as Tensor
else:
    Tensor: TypeAlias = Any
    """What checks annotations in tests looks at shape and dtype alone."""
