"""A share of trials, and its interval."""

import math

Z = 1.959963984540054
"""For a 95 % interval: the 97.5 % point of the standard normal distribution."""


def wilson(count: float, of: float) -> tuple[float, float]:
    """The 95 % interval of a share, in [0, 1]; also valid for shares near 0.

    Args:
        count: Trials that had the property; not an integer if `of` is not.
        of: Number of trials, above 0; the effective number if some depend on each other, which is why
            `scipy.stats.binomtest`, which only takes integers, is not used.

    Source: Wilson 1927.
    """
    share, spread = count / of, Z * Z / of
    middle = share + spread / 2
    width = Z * math.sqrt(share * (1 - share) / of + spread / (4 * of))
    return max(0.0, (middle - width) / (1 + spread)), min(1.0, (middle + width) / (1 + spread))
