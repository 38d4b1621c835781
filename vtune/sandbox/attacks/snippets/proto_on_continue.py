# MUST NOT: work outside of any time limit, from the handler of the signal that wakes the session
# CHECK: killed or timeout within soft+grace; no CPU used between calls
# SOFT: 1
# LAYER: freeze

import signal


def awake(number, frame):
    while True:
        pass


for number in range(1, 65):
    try:
        signal.signal(number, awake)
    except (OSError, ValueError):
        pass
print("handlers set")
