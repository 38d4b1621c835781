# MUST NOT: give oneself more time by rewriting the runner's own numbers
# CHECK: killed or timeout within soft+grace
# SOFT: 1
# LAYER: timer

import gc
import signal

for thing in gc.get_objects():
    if type(thing) is dict:
        for key in ("seconds", "soft", "grace", "cpu_seconds", "output_chars", "max_pixels"):
            if isinstance(thing.get(key), (int, float)):
                thing[key] = 10**9
    elif hasattr(thing, "armed"):
        thing.armed = False
signal.setitimer(signal.ITIMER_REAL, 10**6)
while True:
    pass
