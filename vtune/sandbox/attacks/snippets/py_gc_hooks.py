# MUST NOT: run from the garbage collector, in the runner's own code
# CHECK: no CPU used between calls; next call answered
# SOFT: 2
# LAYER: freeze

import gc
import time


def collected(phase, info):
    stop = time.monotonic() + 0.2
    while time.monotonic() < stop:
        pass
    raise RuntimeError("from the collector")


gc.callbacks.append(collected)
gc.unfreeze()
gc.set_threshold(1, 1, 1)
gc.set_debug(gc.DEBUG_SAVEALL)
