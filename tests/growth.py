"""How the time of a computation grows with its size."""

import time
from collections.abc import Callable


def growth(prepare: Callable[[int], Callable[[], object]], size: int, times: int) -> float:
    """Time for `times` the size over time for `size`: about `times` where it is linear, else its square.

    Each is the least of five, taken in turns: a neighbour on the machine makes a measurement longer, never
    shorter. A bar half way between leaves room for caches.
    """
    taken: dict[int, list[float]] = {size: [], times * size: []}
    for _ in range(5):
        for each, seconds in taken.items():
            run = prepare(each)
            began = time.process_time()
            run()
            seconds.append(time.process_time() - began)
    return min(taken[times * size]) / min(taken[size])
