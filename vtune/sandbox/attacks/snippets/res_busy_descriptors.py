# MUST NOT: wait on a pipe that nobody writes to, with everything that could end it switched off
# CHECK: killed or timeout within soft+grace
# SOFT: 1
# LAYER: timer

import os
import signal

here, there = os.pipe()
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
os.read(here, 1)
