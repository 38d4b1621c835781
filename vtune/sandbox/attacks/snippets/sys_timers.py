# MUST NOT: start timers or events that fire after the call, or in another thread
# CHECK: refused
# SOFT: 2
# LAYER: seccomp

import ctypes
import os

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long


def kernel(what, numbers, *arguments):
    """Make a system call; `numbers` are those of x86_64 and aarch64."""
    number = numbers[os.uname().machine == "aarch64"]
    if number is None:
        print("refused", what, "does not exist here")
        return
    values = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    result = LIBC.syscall(ctypes.c_long(number), *values)
    print("DONE" if result >= 0 else "refused", what, result, os.strerror(ctypes.get_errno()))


event = (ctypes.c_int * 16)()
timer = ctypes.c_int()
event[2], event[3], event[4] = 9, 4, int("{{VICTIM}}")
kernel("timer for a foreign thread", (222, 107), 1, event, ctypes.byref(timer))
event[2], event[3] = 14, 0
kernel("timer for itself", (222, 107), 1, event, ctypes.byref(timer))
kernel("timer descriptor that wakes the machine", (283, 85), 8, 0)
