# MUST NOT: load programs into the kernel or measure others
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


attributes = (ctypes.c_uint32 * 32)(1, 112, 0, 0)
kernel("perf_event_open", (298, 241), attributes, 0, -1, -1, 0)
kernel("perf_event_open on the victim", (298, 241), attributes, int("{{VICTIM}}"), -1, -1, 0)
kernel("bpf map", (321, 280), 0, (ctypes.c_uint32 * 18)(2, 4, 8, 1), 72)
kernel("bpf program", (321, 280), 5, (ctypes.c_uint32 * 36)(1, 2), 144)
kernel("lookup_dcookie", (212, 18), 0, 0, 0)
kernel("uprobe", (335, None))
