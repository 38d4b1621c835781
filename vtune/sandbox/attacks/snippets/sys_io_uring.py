# MUST NOT: do through io_uring what the filter forbids
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


ring = ctypes.create_string_buffer(256)
kernel("io_uring_setup", (425, 425), 8, ring)
kernel("io_uring_enter", (426, 426), 0, 1, 0, 0, 0, 0)
kernel("io_uring_register", (427, 427), -1, 0, 0, 0)
kernel("io_setup", (206, 0), 8, ring)
