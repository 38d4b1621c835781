# MUST NOT: go on working after the call by timers that are left running
# CHECK: no CPU used between calls; next call answered
# SOFT: 2
# LAYER: freeze

import signal
import time


def late(number, frame):
    open("late.txt", "a").write("after the call\n")
    stop = time.monotonic() + 5
    while time.monotonic() < stop:
        pass


for number, timer in ((signal.SIGVTALRM, signal.ITIMER_VIRTUAL), (signal.SIGPROF, signal.ITIMER_PROF)):
    signal.signal(number, late)
    signal.setitimer(timer, 0.01, 0.01)
signal.signal(signal.SIGALRM, late)
signal.signal(signal.SIGIO, late)
