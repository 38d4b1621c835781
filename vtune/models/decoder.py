"""The language model for rows that grow by one token at a time, run directly on its weights."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import embedding

from vtune.models.decoding import KeyValues
from vtune.models.fused import normed
from vtune.models.rotation import turned


class Norm(NamedTuple):
    """Root-mean-square normalisation of the last axis."""

    weight: Tensor
    epsilon: float

    def __call__(self, states: Tensor) -> Tensor:
        """Normalised states, same shape (..., D)."""
        return normed(states, self.weight, self.epsilon)


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


class _Layer(NamedTuple):
    """One layer's weights, as views of the model's."""

    before_attention: Norm
    query: Linear
    key: Linear
    value: Linear
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
        model: A transformers `…ForConditionalGeneration`; its weights are used in place.
    """

    def __init__(self, model: Any) -> None:
        language = model.model.language_model
        self._embedding: Tensor = language.embed_tokens.weight
        self._layers = [_layer(layer) for layer in language.layers]
        self._norm = _norm(language.norm)

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
            query = layer.query(seen).view(rows, -1, layer.head)
            key = layer.key(seen).view(rows, -1, layer.head)
            value = layer.value(seen).view(rows, -1, layer.head)
            if layer.query_norm is not None and layer.key_norm is not None:
                query, key = layer.query_norm(query), layer.key_norm(key)
            query, key = turned(query, cosine, sine), turned(key, cosine, sine)
            found = kept.attend(number, query, key, value, layer.scaling)
            hidden = layer.out.added(hidden, found)
            seen = layer.before_map(hidden)
            hidden = layer.down.added(hidden, layer.activation(layer.gate(seen)) * layer.up(seen))
        return self._norm(hidden)


def _norm(module: Any) -> Norm:
    return Norm(module.weight, module.variance_epsilon)


def _linear(module: Any) -> Linear:
    return Linear(module.weight.t(), module.bias)


def _layer(module: Any) -> _Layer:
    attention, mlp = module.self_attn, module.mlp
    normed = hasattr(attention, "q_norm")
    return _Layer(
        before_attention=_norm(module.input_layernorm),
        query=_linear(attention.q_proj),
        key=_linear(attention.k_proj),
        value=_linear(attention.v_proj),
        query_norm=_norm(attention.q_norm) if normed else None,
        key_norm=_norm(attention.k_norm) if normed else None,
        out=_linear(attention.o_proj),
        before_map=_norm(module.post_attention_layernorm),
        gate=_linear(mlp.gate_proj),
        up=_linear(mlp.up_proj),
        down=_linear(mlp.down_proj),
        activation=mlp.act_fn,
        head=attention.head_dim,
        scaling=attention.scaling,
    )
