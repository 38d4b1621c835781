"""The language model for rows that grow by one token at a time, run directly on its weights."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import embedding, rms_norm

from vtune.models.decoding import KeyValues
from vtune.models.rotation import turned

JOINED = 2**26
"""Bytes of query, key and value weights up to which they are copied into one matrix per layer; ours."""


class Norm(NamedTuple):
    """Root-mean-square normalisation of the last axis, without gradient."""

    weight: Tensor
    """(D,)."""
    epsilon: float
    factor: Tensor | None = None
    """The weight times the root of D, float32: on a CPU states are divided by their length."""
    floor: Tensor | None = None
    """The root of D times epsilon, float32, (); on a GPU, which has a kernel for all of it, both are None."""

    @classmethod
    def of(cls, module: Any) -> "Norm":
        """The normalisation of a transformers module."""
        weight, epsilon = module.weight, module.variance_epsilon
        if weight.is_cuda:
            return cls(weight, epsilon)
        width = len(weight)
        return cls(weight, epsilon, weight.float() * width**0.5, torch.tensor((width * epsilon) ** 0.5))

    def __call__(self, states: Tensor) -> Tensor:
        """Normalised states, same shape (..., D)."""
        if self.factor is None or self.floor is None:
            return rms_norm(states, self.weight.shape, self.weight, self.epsilon)
        # For a few rows a CPU spends its time on starting operations; these are as few as it takes.
        length = torch.linalg.vector_norm(states, dim=-1, keepdim=True, dtype=torch.float32)
        return (states / torch.hypot(length, self.floor)).mul_(self.factor).to(states.dtype)


class Linear(NamedTuple):
    """A linear map."""

    weight: Tensor
    """(A, B): the transpose of the model's weight, sharing its memory."""
    bias: Tensor | None

    def __call__(self, states: Tensor) -> Tensor:
        """(R, A) to (R, B)."""
        if self.bias is None:
            return torch.mm(states, self.weight)
        return torch.addmm(self.bias, states, self.weight)

    def added(self, before: Tensor, states: Tensor) -> Tensor:
        """Adds the map of `states` (R, A) to `before` (R, B)."""
        found = torch.addmm(before, states, self.weight)
        return found if self.bias is None else found + self.bias


class Projections(NamedTuple):
    """Linear maps of the same states: a single one with all their outputs, or several with joined outputs."""

    parts: tuple[Linear, ...]

    @classmethod
    def of(cls, modules: Sequence[Any], *, joined: bool) -> "Projections":
        """The maps of `torch.nn.Linear` modules; `joined` copies their weights into one."""
        if not joined:
            return cls(tuple(map(_linear, modules)))
        biases = [module.bias for module in modules if module.bias is not None]
        weight = torch.cat([module.weight for module in modules])
        return cls((Linear(weight.t(), torch.cat(biases) if biases else None),))

    def __call__(self, states: Tensor) -> Tensor:
        """(R, A) to (R, outputs of all maps)."""
        found = [part(states) for part in self.parts]
        return found[0] if len(found) == 1 else torch.cat(found, dim=-1)


class _Layer(NamedTuple):
    """One layer's weights: views of the model's, but for copies of what `JOINED` allows."""

    before_attention: Norm
    attended: Projections
    """Queries, keys and values."""
    keys: int
    """Number of heads of keys, and of values."""
    query_norm: Norm | None
    key_norm: Norm | None
    out: Linear
    before_map: Norm
    gate: Linear
    up: Linear
    down: Linear
    activation: Callable[[Tensor], Tensor]
    head: int
    """Width of a head."""
    scaling: float


class Decoder:
    """The layers of a language model with dense attention and gated MLPs, for one token per row.

    They compute the same as the transformers modules, which for one token per row spend as much time on
    overhead as on the arithmetic itself.

    Args:
        model: A transformers `…ForConditionalGeneration`; its weights must not change while this is in use.
    """

    def __init__(self, model: Any) -> None:
        language = model.model.language_model
        self._embedding: Tensor = language.embed_tokens.weight
        attended = [module.weight for layer in language.layers for module in _attended(layer)]
        joined = sum(weight.nbytes for weight in attended) <= JOINED
        self._layers = [_layer(layer, joined) for layer in language.layers]
        self._norm = Norm.of(language.norm)

    def step(self, tokens: Tensor, cosine: Tensor, sine: Tensor, kept: KeyValues) -> Tensor:
        """Process one more token per row.

        Args:
            tokens: int64, (R,).
            cosine: Cosines of the angles at the tokens' positions, (R, 1, D).
            sine: Their sines, `signed`.
            kept: Keys and values of the rows so far; those of the new tokens are added.

        Returns:
            Hidden states after the last norm, (R, hidden).
        """
        kept.grow()
        rows = tokens.shape[0]
        hidden = embedding(tokens, self._embedding)
        for number, layer in enumerate(self._layers):
            seen = layer.before_attention(hidden)
            heads = layer.attended(seen).view(rows, -1, layer.head)
            positioned, value = heads[:, : -layer.keys], heads[:, -layer.keys :]
            if layer.query_norm is not None and layer.key_norm is not None:
                query, key = positioned[:, : -layer.keys], positioned[:, -layer.keys :]
                positioned = torch.cat((layer.query_norm(query), layer.key_norm(key)), dim=1)
            positioned = turned(positioned, cosine, sine)
            query, key = positioned[:, : -layer.keys], positioned[:, -layer.keys :]
            found = kept.attend(number, query, key, value, layer.scaling)
            hidden = layer.out.added(hidden, found)
            seen = layer.before_map(hidden)
            hidden = layer.down.added(hidden, layer.activation(layer.gate(seen)).mul_(layer.up(seen)))
        return self._norm(hidden)


def _linear(module: Any) -> Linear:
    return Linear(module.weight.t(), module.bias)


def _attended(layer: Any) -> tuple[Any, Any, Any]:
    attention = layer.self_attn
    return attention.q_proj, attention.k_proj, attention.v_proj


def _layer(module: Any, joined: bool) -> _Layer:
    attention, mlp = module.self_attn, module.mlp
    normed = hasattr(attention, "q_norm")
    return _Layer(
        before_attention=Norm.of(module.input_layernorm),
        attended=Projections.of(_attended(module), joined=joined),
        keys=attention.k_proj.weight.shape[0] // attention.head_dim,
        query_norm=Norm.of(attention.q_norm) if normed else None,
        key_norm=Norm.of(attention.k_norm) if normed else None,
        out=_linear(attention.o_proj),
        before_map=Norm.of(module.post_attention_layernorm),
        gate=_linear(mlp.gate_proj),
        up=_linear(mlp.up_proj),
        down=_linear(mlp.down_proj),
        activation=mlp.act_fn,
        head=attention.head_dim,
        scaling=attention.scaling,
    )
