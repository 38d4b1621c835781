"""Cluster resampling: what belongs together is resampled together."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

RESAMPLES = 4000
"""Ours: the ends of an interval over six clusters are then about the tenth values from either side."""
SEED = 0
"""Ours: the same observations give the same interval in every command that shows it."""
BLOCK = 2**22
"""Number of draws in memory at a time; ours."""


def totals(clusters: ArrayLike, *columns: Array) -> Array:
    """The sums of each column over each cluster, shape (clusters, columns), in the order of cluster names.

    Args:
        clusters: Name of the cluster of each observation, shape (N,).
        columns: Each of shape (N,).
    """
    names, of = np.unique(np.asarray(clusters, dtype=np.str_), return_inverse=True)
    sums = [np.bincount(of, weights=column, minlength=len(names)) for column in columns]
    return np.stack(sums, axis=1).astype(np.float64)


def resampled(sums: Array, *, seed: int = SEED) -> Array:
    """The sum over clusters in each resample, which has the same number of clusters, sampled with
    replacement.

    Equal clusters are sampled as one kind, so the cost depends on the number of kinds.

    Args:
        sums: Shape (clusters, columns), at least one cluster.
        seed: The same seed gives the same resamples.

    Returns:
        Shape (RESAMPLES, columns).

    Source: the cluster bootstrap, Davison & Hinkley 1997, §3.8, first stage only.
    """
    kinds, times = np.unique(sums, axis=0, return_counts=True)
    draw = np.random.default_rng(seed)
    block = max(1, BLOCK // len(kinds))
    return np.concatenate(
        [
            draw.multinomial(len(sums), times / len(sums), size=min(block, RESAMPLES - done)) @ kinds
            for done in range(0, RESAMPLES, block)
        ]
    )
