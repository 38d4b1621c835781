# MUST NOT: answer letter by letter, never finishing
# CHECK: killed or timeout within soft+grace
# SOFT: 1
# LAYER: timer

import os
import signal
import struct
import time

signal.setitimer(signal.ITIMER_REAL, 0)
signal.signal(signal.SIGALRM, signal.SIG_IGN)
os.write(10, struct.pack("!I", 10_000))
while True:
    os.write(10, b" ")
    time.sleep(0.05)
