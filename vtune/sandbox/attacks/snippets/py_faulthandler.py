# MUST NOT: have the interpreter's own watchdog thread end the process later
# CHECK: no CPU used between calls; next call answered
# SOFT: 2
# LAYER: seccomp

import faulthandler
import signal

for start in (
    lambda: faulthandler.dump_traceback_later(0.3, repeat=True, file=1),
    lambda: faulthandler.dump_traceback_later(0.3, exit=True, file=1),
    lambda: faulthandler.register(signal.SIGCONT, file=10, all_threads=True),
    lambda: faulthandler.enable(file=10),
):
    try:
        start()
        print("started")
    except (RuntimeError, OSError, ValueError) as error:
        print("refused", error)
