# MUST NOT: stop oneself so that no answer comes
# CHECK: killed or timeout within soft+grace
# SOFT: 1
# LAYER: timer

import os
import signal

for number in (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN):
    os.kill(os.getpid(), number)
while True:
    signal.pause()
