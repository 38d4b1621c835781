# MUST NOT: take more of the processor, or take it from others
# CHECK: victim, zygote, broker and sibling alive; refused
# SOFT: 2
# LAYER: seccomp

import ctypes
import os

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long


def attempt(what, action):
    try:
        result = action()
    except Exception as error:
        print("refused", what, type(error).__name__, str(error)[:80])
    else:
        print("DONE", what, repr(result)[:120])


def kernel(what, numbers, *arguments):
    """Make a system call; `numbers` are those of x86_64 and aarch64."""
    number = numbers[os.uname().machine == "aarch64"]
    if number is None:
        print("refused", what, "does not exist here")
        return
    values = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result = LIBC.syscall(ctypes.c_long(number), *values)
    print("DONE" if result >= 0 else "refused", what, result, os.strerror(ctypes.get_errno()))


victim = int("{{VICTIM}}")
attempt("nice", lambda: os.nice(-20))
attempt("own rank", lambda: os.setpriority(os.PRIO_PROCESS, 0, -20))
attempt("rank of the victim", lambda: os.setpriority(os.PRIO_PROCESS, victim, 19))
attempt("real time", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50)))
attempt("victim idle", lambda: os.sched_setscheduler(victim, os.SCHED_IDLE, os.sched_param(0)))
attempt("victim's cores", lambda: os.sched_setaffinity(victim, {0}))
kernel(
    "sched_setattr", (314, 274), 0, (ctypes.c_uint32 * 12)(48, 6, 0, 0, 0, 0, 10**6, 0, 10**7, 0, 10**7, 0), 0
)
kernel("ioprio_set", (251, 30), 1, victim, (3 << 13))
