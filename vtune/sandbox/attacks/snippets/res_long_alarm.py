# MUST NOT: set the alarm to another day
# CHECK: killed or timeout within soft+grace
# SOFT: 1
# LAYER: timer

import signal

signal.setitimer(signal.ITIMER_REAL, 86_400)
signal.alarm(86_400)
while True:
    pass
