"""A share of trials, and how sure it is."""

import math

Z = 1.959964
"""Of a 95 % interval."""


def wilson(count: int, of: int) -> tuple[float, float]:
    """The 95 % interval of a share, in [0, 1]; it is right for shares near 0, too.

    Args:
        count: Trials that had the property.
        of: Trials, at least one.

    Source: Wilson 1927.
    """
    share, spread = count / of, Z * Z / of
    middle = share + spread / 2
    width = Z * math.sqrt(share * (1 - share) / of + spread / (4 * of))
    return max(0.0, (middle - width) / (1 + spread)), min(1.0, (middle + width) / (1 + spread))
