# MUST NOT: arm timers after the call has been timed, which fire while the session is stopped
# CHECK: next call answered; no CPU used between calls
# SOFT: 2
# LAYER: protocol

import gc
import os
import signal


def again(phase, info):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    except OSError:
        pass


class Late:
    def __del__(self):
        again("", {})


gc.callbacks.append(again)
held = [Late()]
held.append(held)
del held
for timer in (signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
    try:
        signal.setitimer(timer, 0.001, 0.001)
    except OSError as error:
        print("refused", error)
for number in (signal.SIGVTALRM, signal.SIGPROF, signal.SIGUSR1):
    signal.signal(number, lambda number, frame: os.write(1, b"late"))
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
os.kill(os.getpid(), signal.SIGUSR1)
