# MUST NOT: set the limits of the fork server, the trainer or another session, or widen its own
# CHECK: refused; fork server lives; another session works
# SOFT: 2
# LAYER: seccomp

import os
import resource

for who, pid in (("fork server", "{{ZYGOTE_PID}}"), ("trainer", "{{TRAINER_PID}}"), ("another session", "{{SIBLING_PID}}")):
    for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_CPU, resource.RLIMIT_AS):
        for values in ((0, 0), None):
            try:
                found = resource.prlimit(int(pid), limit, *([values] if values else []))
            except OSError as error:
                print("refused", who, limit, error.strerror)
            else:
                print("DONE", who, limit, found)
for limit in (resource.RLIMIT_FSIZE, resource.RLIMIT_CPU, resource.RLIMIT_NOFILE):
    try:
        resource.setrlimit(limit, (1 << 40, 1 << 40))
    except (OSError, ValueError) as error:
        print("refused", os.getpid(), limit, error)
    else:
        print("DONE", "its own", limit)
