"""Numbers formatted for a terminal."""

from collections.abc import Sequence

GAP = "–"
"""Shown for what could not be measured."""

_BARS = "▁▂▃▄▅▆▇█"


def number(value: float | None) -> str:
    """About four significant digits; integers are shown as such.

    >>> number(0.12345), number(1234.5), number(12.0), number(None)
    ('0.1235', '1234', '12', '–')
    """
    if value is None:
        return GAP
    if float(value).is_integer() and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.4g}"


def percent(value: float | None) -> str:
    """A share in [0, 1] with one decimal.

    >>> percent(0.503)
    '50.3 %'
    """
    return GAP if value is None else f"{100 * value:.1f} %"


def sparkline(values: Sequence[float], width: int) -> str:
    """A curve in at most `width` characters; each stands for the mean of its share of the values.

    >>> sparkline([0, 1, 2, 3], 4), sparkline([5, 5], 8)
    ('▁▃▆█', '▁▁')
    """
    count = min(width, len(values))
    parts = [values[i * len(values) // count : (i + 1) * len(values) // count] for i in range(count)]
    means = [sum(part) / len(part) for part in parts]
    low, high = min(means, default=0.0), max(means, default=0.0)
    wide = high - low or 1.0
    # Divide first: multiplying by 1/wide would overflow for the smallest floats.
    return "".join(_BARS[round((mean - low) / wide * (len(_BARS) - 1))] for mean in means)
