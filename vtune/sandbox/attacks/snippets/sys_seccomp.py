# MUST NOT: lay a second filter over the first that pretends success or reports elsewhere
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


allow = (ctypes.c_uint64 * 1)(0x7FFF000000000006)
program = (ctypes.c_uint64 * 2)(1, ctypes.addressof(allow))
kernel("strict mode", (317, 277), 0, 1, 0)
kernel("filter", (317, 277), 1, 0, program)
kernel("filter with listener", (317, 277), 1, 8, program)
kernel("filter by prctl", (157, 167), 22, 2, program, 0, 0)
kernel("landlock ruleset", (444, 444), (ctypes.c_uint64 * 2)(1, 0), 8, 0)
