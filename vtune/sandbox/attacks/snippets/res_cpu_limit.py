# MUST NOT: burn the processor over many calls, deaf to the warning
# CHECK: killed or timeout within soft+grace; refused
# SOFT: 2
# LAYER: rlimits

import resource
import signal

soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
print("refused" if hard not in (-1, resource.RLIM_INFINITY) else "DONE: no limit of CPU time", hard)
signal.signal(signal.SIGXCPU, signal.SIG_IGN)
while True:
    pass
