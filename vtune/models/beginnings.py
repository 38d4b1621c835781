"""The keys and values of a prefix that several rows share, kept once for decoding.

On a CPU, the time of a decoding step is the time that its keys and values take to pass through memory. The
rollouts of a group share their prompt and its pictures, which are most of what they attend to.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch.nn.functional import pad

SPARE = 2
"""Most seats per row; ours. An empty seat costs as much as a row."""


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of neighbouring rows with a common prefix; a row on its own is all prefix."""

    sizes: list[int]
    """Rows of each group."""
    places: list[torch.Tensor]
    """Indices of each group's prefix in the packed row: int64, (P,)."""
    rest: list[torch.Tensor]
    """Indices of the rest of each row."""

    @property
    def columns(self) -> int:
        """Columns kept per layer, with padding: one prefix per group, the rest per row."""
        widest = [max(map(len, places)) for places in (self.places, self.rest)]
        return len(self.places) * widest[0] + len(self.rest) * widest[1]

    @property
    def crowded(self) -> bool:
        """Whether most seats in `Beginnings` would be empty."""
        return _crowded(len(self.rest), len(self.sizes), max(self.sizes))


def groups_of(places: Sequence[torch.Tensor]) -> Groups:
    """The grouping that keeps the fewest columns.

    All rows of a batch may share the same system prompt, and those of one question also its pictures.

    Args:
        places: Indices of each row's tokens in the packed row, int64.
    """
    common = [_common(a, b) for a, b in pairwise(places)]
    ways = [_cut(places, common, least) for least in sorted({*common, max(map(len, places)) + 1})]
    return min(ways, key=lambda way: way.columns)


def _cut(places: Sequence[torch.Tensor], common: Sequence[int], least: int) -> Groups:
    """Groups in which neighbours have at least this many places in common."""
    starts = [0, *(row + 1 for row, count in enumerate(common) if count < least)]
    ends = [*starts[1:], len(places)]
    begun = [min(common[a : b - 1], default=len(places[a])) for a, b in zip(starts, ends, strict=True)]
    sizes = [b - a for a, b in zip(starts, ends, strict=True)]
    counts = [count for count, size in zip(begun, sizes, strict=True) for _ in range(size)]
    return Groups(
        sizes,
        [places[a][:count] for a, count in zip(starts, begun, strict=True)],
        [one[count:] for one, count in zip(places, counts, strict=True)],
    )


def _crowded(rows: int, groups: int, most: int) -> bool:
    """Whether most seats would be empty: every group has as many as the largest group has rows."""
    return groups * most > SPARE * rows


def _common(a: torch.Tensor, b: torch.Tensor) -> int:
    """Number of leading places that two rows have in common."""
    least = min(len(a), len(b))
    differing = (a[:least] != b[:least]).nonzero()
    return int(differing[0, 0]) if len(differing) else least


class Beginnings:
    """Keys and values of the prefixes of G groups, at most P places each, for R rows; float32."""

    def __init__(self, groups: Groups) -> None:
        device = groups.places[0].device
        width = max(map(len, groups.places))
        lengths = torch.tensor([len(one) for one in groups.places], device=device)
        self._places = torch.stack([pad(one, (0, width - len(one))) for one in groups.places])
        hidden = torch.arange(width, device=device) >= lengths[:, None]
        self._bias = torch.zeros(hidden.shape, device=device).masked_fill(hidden, -torch.inf)
        """Bias added to the scores, (G, P)."""
        sizes = torch.tensor(groups.sizes, device=device)
        self._group = torch.repeat_interleave(torch.arange(len(sizes), device=device), sizes)
        """Each row's group, (R,)."""
        self._layers: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._seat()

    def keep(self, key: torch.Tensor, value: torch.Tensor) -> None:
        """Keep keys and values of the next layer's prefill, (1, H, T, D)."""
        key, value = (states[0][:, self._places].transpose(0, 1) for states in (key, value))
        self._layers.append((key.contiguous(), value.contiguous()))

    def scores(self, layer: int, query: torch.Tensor) -> torch.Tensor:
        """Scores of each row's scaled queries, (R, H, N, D), against its prefix: (R, H, N, P)."""
        keys, _ = self._layers[layer]
        found = torch.matmul(self._seated(query), keys.transpose(2, 3)) + self._bias[:, None, None]
        return self._by_rows(found, query.shape[2])

    def found(self, layer: int, weights: torch.Tensor) -> torch.Tensor:
        """The values weighted by (R, H, N, P): (R, H, N, D)."""
        _, values = self._layers[layer]
        return self._by_rows(torch.matmul(self._seated(weights), values), weights.shape[2])

    def select(self, rows: torch.Tensor) -> None:
        """Keep only these rows, in this order, and their groups."""
        used, self._group = torch.unique(self._group[rows], return_inverse=True)
        if len(used) < len(self._bias):
            self._bias = self._bias[used]
            self._layers = [(key[used], value[used]) for key, value in self._layers]
        self._seat()

    @property
    def crowded(self) -> bool:
        """Whether most seats are empty, so that rows are better kept separately."""
        return _crowded(len(self._group), *self._shape)

    @property
    def saved(self) -> int:
        """Number of columns saved because rows share them."""
        return (len(self._group) - self._shape[0]) * self._bias.shape[1]

    def spread(self) -> tuple[list[tuple[torch.Tensor, torch.Tensor]], torch.Tensor]:
        """Per-row keys and values (R, H, P, D) of each layer, and the bias of the scores, (R, 1, 1, P)."""
        layers = [(key[self._group], value[self._group]) for key, value in self._layers]
        return layers, self._bias[self._group][:, None, None]

    def _seat(self) -> None:
        """Assign each row a seat in its group; all groups have as many seats as the largest has rows."""
        counts = self._group.bincount()
        first = counts.cumsum(0) - counts
        most = int(counts.max())
        rows = torch.arange(len(self._group), device=self._group.device)
        by_group = self._group.argsort(stable=True)
        self._seats = torch.empty_like(rows)
        """The seat of each row, (R,)."""
        self._seats[by_group] = self._group[by_group] * most + rows - first[self._group[by_group]]
        self._shape = len(counts), most
        taken = torch.zeros(len(counts) * most, dtype=torch.int64, device=rows.device)
        taken[self._seats] = rows
        # Unused seats hold the first row; their results are ignored.
        in_order = len(taken) == len(rows) and torch.equal(taken, rows)
        self._taken = None if in_order else taken

    def _seated(self, of_rows: torch.Tensor) -> torch.Tensor:
        """Arranges (R, H, N, X) by groups: (G, H, seats x N, X)."""
        seated = of_rows if self._taken is None else of_rows[self._taken]
        groups, seats = self._shape
        _, heads, count, width = of_rows.shape
        by_groups = seated.view(groups, seats, heads, count, width).transpose(1, 2)
        return by_groups.reshape(groups, heads, seats * count, width)

    def _by_rows(self, of_groups: torch.Tensor, count: int) -> torch.Tensor:
        """The inverse: (G, H, seats x N, X) to (R, H, N, X)."""
        groups, seats = self._shape
        heads, width = of_groups.shape[1], of_groups.shape[3]
        by_seats = of_groups.view(groups, heads, seats, count, width).transpose(1, 2)
        by_seats = by_seats.reshape(groups * seats, heads, count, width)
        return by_seats if self._taken is None else by_seats[self._seats]
