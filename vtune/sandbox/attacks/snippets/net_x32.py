# MUST NOT: pass the filter by the numbers of the x32 table
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


base = 0x40000000
kernel("x32 getpid", (base + 39, None))
kernel("x32 socket", (base + 41, None), 2, 1, 0)
kernel("x32 open", (base + 2, None), b"{{CANARY}}/secret.txt", 0)
