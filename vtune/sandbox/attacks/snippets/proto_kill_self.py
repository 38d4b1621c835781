# MUST NOT: end by a signal and be taken for a failure of the sandbox
# CHECK: broker alive; next call answered
# SOFT: 2
# LAYER: protocol

import os
import signal

print("so far", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
