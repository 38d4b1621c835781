# MUST NOT: fill the queue of signals that all processes of its user share
# CHECK: another session works; next call answered; fork server lives
# SOFT: 2
# LAYER: rlimits

import os
import signal

numbers = range(signal.SIGRTMIN, signal.SIGRTMAX + 1)
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
queued = 0
try:
    while queued < 200_000:
        os.kill(os.getpid(), numbers[queued % len(numbers)])
        queued += 1
except OSError as error:
    print("refused", error.strerror)
print(queued, "queued")
