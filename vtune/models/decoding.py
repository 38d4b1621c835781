"""The KV cache for decoding: keys and values of rows that grow by one token at a time."""

from collections.abc import Callable, Sequence

import torch
from torch.nn.functional import pad, scaled_dot_product_attention

from vtune.models.beginnings import Beginnings, groups_of

ROOM = 128
"""Number of columns allocated at a time: a longer row needs a copy of the existing ones."""

LEAST: float = 1500
"""Columns that must be saved before common prefixes are stored once; ours. Measured with 96 numbers per
column (`tests/bench/bench_beginnings.py`): with 1,100 attention takes as long; with 2,000, 0.93 of the time;
with 4,000, 0.8; with 34,000, 0.36."""


class KeyValues:
    """Keys and values of R rows, aligned at the end: shorter rows begin in a later column.

    On a CPU, the common prefix of a group of rows is stored once if that saves many columns (see
    `vtune.models.beginnings`).

    Args:
        places: Indices of each row's tokens in the packed row of the prefill (see `vtune.models.packed`).
        dtype: Type of keys and values.
    """

    def __init__(self, places: Sequence[torch.Tensor], dtype: torch.dtype) -> None:
        self._shared, places = _shared(places, dtype)
        width = max(len(one) for one in places)
        self._places = torch.stack([pad(one, (width - len(one), 0)) for one in places])
        before = torch.tensor([width - len(one) for one in places], device=self._places.device)
        hidden = torch.arange(width, device=self._places.device) < before[:, None]
        self._bias: torch.Tensor | None = None
        """Bias added to the scores, (R, 1, 1, columns); None if all rows have the same length."""
        if any(len(one) < width for one in places):
            bias = torch.zeros(hidden.shape, device=self._places.device).masked_fill(hidden, -torch.inf)
            self._bias = bias[:, None, None]
        self._layers: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._used = self._room = width

    def keep(self, key: torch.Tensor, value: torch.Tensor) -> None:
        """Keep keys and values of the next layer's prefill, (1, H, T, D)."""
        if self._shared is not None:
            self._shared.keep(key, value)
        key, value = (states[0][:, self._places].transpose(0, 1) for states in (key, value))
        self._layers.append((key, value))
        if self._bias is not None:
            self._bias = self._bias.to(key.dtype)

    def grow(self) -> None:
        """Add a column; called before each new token."""
        if self._used == self._room:
            self._map_layers(lambda states: pad(states, (0, 0, 0, ROOM)))
            self._bias = pad(self._bias, (0, ROOM)) if self._bias is not None else None
            self._room += ROOM
        self._used += 1

    def attend(
        self, layer: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float
    ) -> torch.Tensor:
        """Add the new token of each row, and compute its attention over the row.

        Args:
            layer: Index of the layer.
            query: (R, heads, D).
            key: (R, H, D).
            value: (R, H, D).
            scaling: Factor for the scores.

        Returns:
            (R, heads x D).
        """
        keys, values = self._layers[layer]
        keys.select(2, self._used - 1).copy_(key)
        values.select(2, self._used - 1).copy_(value)
        # Query heads that share keys are treated as several queries of one head, so that nothing is repeated.
        rows, heads, width = key.shape
        query = query.view(rows, heads, -1, width)
        keys, values = keys[:, :, : self._used], values[:, :, : self._used]
        bias = self._bias if self._bias is None else self._bias[..., : self._used]
        if self._shared is None:
            found = scaled_dot_product_attention(query, keys, values, attn_mask=bias, scale=scaling)
        else:
            query = query * scaling
            own = torch.matmul(query, keys.transpose(2, 3))
            begun = self._shared.scores(layer, query)
            weights = torch.cat([begun, own if bias is None else own + bias], dim=-1).softmax(-1)
            first, last = weights.tensor_split([begun.shape[-1]], dim=-1)
            found = self._shared.found(layer, first) + torch.matmul(last, values)
        return found.reshape(rows, -1)

    def select(self, rows: torch.Tensor) -> None:
        """Keep only these rows, in this order."""
        self._bias = self._bias if self._bias is None else self._bias[rows]
        self._map_layers(lambda states: states[rows])
        if self._shared is not None:
            self._shared.select(rows)
            if self._shared.crowded or self._shared.saved < LEAST:
                self._spread(self._shared)

    def _map_layers(self, change: Callable[[torch.Tensor], torch.Tensor]) -> None:
        """Replace keys and values layer by layer, so that only one layer's exist twice at a time."""
        for number in range(len(self._layers)):
            key, value = self._layers[number]
            self._layers[number] = change(key), change(value)
            del key, value  # otherwise they would live until the next ones are fetched

    def _spread(self, shared: Beginnings) -> None:
        """From now on, store the prefix for each row separately."""
        begun, hidden = shared.spread()
        own = [(key[:, :, : self._used], value[:, :, : self._used]) for key, value in self._layers]
        bias = hidden.new_zeros(len(hidden), 1, 1, self._used) if self._bias is None else self._bias
        self._bias = torch.cat([hidden, bias[..., : self._used]], dim=-1)
        self._layers = [
            (torch.cat([first[0], last[0]], dim=2), torch.cat([first[1], last[1]], dim=2))
            for first, last in zip(begun, own, strict=True)
        ]
        self._used = self._room = self._bias.shape[-1]
        self._shared = None


def _shared(
    places: Sequence[torch.Tensor], dtype: torch.dtype
) -> tuple[Beginnings | None, Sequence[torch.Tensor]]:
    """The shared prefixes, None if sharing is not worthwhile; and for each row the places of the rest."""
    # A GPU is fastest with a single attention call, which also rounds less in low precision.
    if places[0].device.type != "cpu" or dtype != torch.float32:
        return None, places
    groups = groups_of(places)
    saved = len(places) * max(map(len, places)) - groups.columns
    return (None, places) if saved < LEAST or groups.crowded else (Beginnings(groups), groups.rest)
