# MUST NOT: switch off what makes memory attacks hard, or change the processor's state
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


kernel("no random addresses", (135, 92), 0x0040000)
kernel("everything executable", (135, 92), 0x0400000)
kernel("32-bit addresses", (135, 92), 0x0800000)
kernel("cpuid faulting", (158, None), 0x1012, 0)
kernel("32-bit vdso", (158, None), 0x2002, 0)
kernel("map_shadow_stack", (453, 453), 0, 4096, 0)
