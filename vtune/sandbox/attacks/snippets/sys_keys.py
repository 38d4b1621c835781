# MUST NOT: keep something in the kernel's key store
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


kernel("add_key", (248, 217), b"user", b"vt_{{TOKEN8}}", b"x", 1, -2)
kernel("session key ring", (250, 219), 1, b"vt_{{TOKEN8}}", 0, 0, 0)
kernel("describe the user's ring", (250, 219), 6, -4, ctypes.create_string_buffer(100), 100, 0)
kernel("request_key", (249, 218), b"user", b"vt_{{TOKEN8}}", 0, -2)
