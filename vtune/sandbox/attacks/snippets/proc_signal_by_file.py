# MUST NOT: let the kernel send a signal for a descriptor that claims another owner
# CHECK: victim, zygote, broker and sibling alive; refused
# SOFT: 2
# LAYER: seccomp

import ctypes
import fcntl
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


here, there = os.pipe()
victim = int("{{VICTIM}}")
attempt("owner", lambda: fcntl.fcntl(here, fcntl.F_SETOWN, victim))
attempt("owner group", lambda: fcntl.fcntl(here, fcntl.F_SETOWN, -victim))
attempt("owner by type", lambda: fcntl.fcntl(here, 15, bytes((ctypes.c_int * 2)(1, victim))))
attempt("which signal", lambda: fcntl.fcntl(here, 10, 9))
attempt("lease on the input", lambda: fcntl.fcntl(os.open(image_path, os.O_RDONLY), 1024, 0))
kernel("FIOSETOWN", (16, 29), here, 0x8901, ctypes.byref(ctypes.c_int(victim)))
try:
    fcntl.fcntl(here, fcntl.F_SETFL, os.O_ASYNC)
    os.write(there, b"x")
except OSError as error:
    print("refused", error.strerror)
