# MUST NOT: start processes without end
# CHECK: refused; no process left
# SOFT: 2
# LAYER: seccomp
# WEAK-OK: 0

import os
import time

stop, started, refused = time.monotonic() + 1.0, 0, 0
while time.monotonic() < stop and started < 300 and refused < 1000:
    try:
        child = os.fork()
    except OSError as error:
        refused += 1
        last = error
        continue
    if child == 0:
        time.sleep(30)
        os._exit(0)
    started += 1
print(f"DONE {started} processes" if started else f"refused {refused} times: {last}")
