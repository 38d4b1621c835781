"""How the time of a computation grows with its size."""

import time
from collections.abc import Callable


def growth(prepare: Callable[[int], Callable[[], object]], size: int, times: int) -> float:
    """Time at `times * size` over time at `size`: about `times` if linear, its square if quadratic.

    Each time is the minimum of five alternating runs: other processes make a measurement longer, never
    shorter. A threshold half way between leaves room for cache effects.
    """
    taken: dict[int, list[float]] = {size: [], times * size: []}
    for _ in range(5):
        for each, seconds in taken.items():
            run = prepare(each)
            began = time.process_time()
            run()
            seconds.append(time.process_time() - began)
    return min(taken[times * size]) / min(taken[size])
