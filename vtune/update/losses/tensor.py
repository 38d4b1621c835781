"""The name `Tensor` for annotations of losses, without torch, which reading a recipe does not need."""

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor as Tensor
else:
    Tensor: TypeAlias = Any
    """Annotation checks in tests look only at shape and dtype."""
