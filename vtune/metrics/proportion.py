"""A share of trials, and its interval."""

import math

Z = 1.959963984540054
"""Of a 95 % interval: the 97.5 % point of the standard normal distribution."""


def wilson(count: float, of: float) -> tuple[float, float]:
    """The 95 % interval of a share, in [0, 1]; it is right for shares near 0, too.

    Args:
        count: Trials that had the property. Not whole where `of` is not.
        of: Trials, more than 0; the effective number of them where some depend on each other, which is why
            this is not `scipy.stats.binomtest`, that takes whole numbers only.

    Source: Wilson 1927.
    """
    share, spread = count / of, Z * Z / of
    middle = share + spread / 2
    width = Z * math.sqrt(share * (1 - share) / of + spread / (4 * of))
    return max(0.0, (middle - width) / (1 + spread)), min(1.0, (middle + width) / (1 + spread))
