"""The widths of a model, and the arithmetic on them that all families share."""

from abc import ABC, abstractmethod
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape(ABC):
    """The widths of a model; each family's subclass describes its layers. `v_` is the vision tower."""

    family: str
    """Its name in `FAMILIES`."""
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tied: bool
    """Whether input embedding and output head share one matrix."""
    v_depth: int
    v_hidden: int
    v_intermediate: int
    v_out: int
    patch: int
    temporal: int
    merge: int
    """Patches per side that become one token."""

    @property
    def query(self) -> int:
        """Width of all query heads."""
        return self.heads * self.head_dim

    @property
    def key(self) -> int:
        """Width of all key heads, which equals that of the value heads."""
        return self.kv_heads * self.head_dim

    @property
    def patch_values(self) -> int:
        """Numbers in one patch as the processor returns it."""
        return 3 * self.temporal * self.patch**2

    @property
    def token_pixels(self) -> int:
        """Pixels (width x height) that become one token."""
        return (self.patch * self.merge) ** 2

    @property
    def parameters(self) -> dict[str, int]:
        """Number of parameters in each part that `update.freeze` can name."""
        return {
            "vision": self.vision_parameters,
            "connector": self.connector_parameters,
            "language": self.language_parameters,
        }

    @property
    def total(self) -> int:
        """Number of all parameters."""
        return sum(self.parameters.values())

    @property
    def head(self) -> int:
        """Parameters of the embedding, plus the output head if it is a separate matrix."""
        return self.vocab * self.hidden * (1 if self.tied else 2)

    @property
    def language_parameters(self) -> int:
        """Parameters of the language model, including embedding and output head."""
        layer = sum(a * b for a, b in self.linears.values()) + self.attention_extra + 2 * self.hidden
        return self.layers * layer + self.head + self.hidden

    @property
    def linears(self) -> dict[str, tuple[int, int]]:
        """(in, out) of each linear map of one layer of the language model, by its name."""
        h, q, k, i = self.hidden, self.query, self.key, self.intermediate
        return {
            "q_proj": (h, q),
            "k_proj": (h, k),
            "v_proj": (h, k),
            "o_proj": (q, h),
            "gate_proj": (h, i),
            "up_proj": (h, i),
            "down_proj": (i, h),
        }

    @property
    @abstractmethod
    def attention_extra(self) -> int:
        """Parameters of attention in one layer of the language model besides its matrices."""

    @property
    @abstractmethod
    def v_linears(self) -> dict[str, tuple[int, int]]:
        """Like `linears`, for one layer of the vision tower."""

    @property
    def linear_names(self) -> dict[str, frozenset[str]]:
        """Names of the linear layers that may have an adapter, by part."""
        head = () if self.tied else ("lm_head",)
        return {
            "vision": frozenset(self.v_linears),
            "connector": frozenset(self.connector_linears),
            "language": frozenset((*self.linears, *head)),
        }

    @property
    def connector_linears(self) -> tuple[str, ...]:
        """Names of the connector's linear layers."""
        return ()

    @property
    @abstractmethod
    def vision_parameters(self) -> int:
        """Parameters of the vision tower without the connector."""

    @property
    @abstractmethod
    def connector_parameters(self) -> int:
        """Parameters of the connector, which turns patches into tokens."""

    @property
    def v_merging(self) -> int:
        """Numbers that autograd keeps per patch in the connector."""
        return 7 * self.v_hidden

    @abstractmethod
    def kept(self, dtype_bytes: int) -> int:
        """Numbers that autograd keeps per token in one layer of the language model.

        Norms that are not fused compute in float32: what they keep counts double when training in bfloat16.
        """

    @abstractmethod
    def v_kept(self, dtype_bytes: int) -> int:
        """The same per patch in one layer of the vision tower."""
