# MUST NOT: let the interpreter itself write to the channel at every signal
# CHECK: next call answered
# SOFT: 2
# LAYER: protocol

import os
import signal

os.set_blocking(10, False)
try:
    signal.set_wakeup_fd(10, warn_on_full_buffer=False)
except ValueError as error:
    print("refused", error)
os.set_blocking(10, True)
signal.raise_signal(signal.SIGCONT)
signal.raise_signal(signal.SIGALRM)
