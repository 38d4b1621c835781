# MUST NOT: hold memory that no limit counts, or hide it
# CHECK: refused
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


attempt("memfd", lambda: os.memfd_create("hidden"))
kernel("memfd_secret", (447, 447), 0)
kernel("userfaultfd", (323, 282), 1)
kernel("process_madvise", (440, 440), -1, 0, 0, 21, 0)
kernel("mlockall", (151, 230), 3)
kernel("remap_file_pages", (216, 234), 0, 4096, 0, 0, 0)
kernel("set_mempolicy", (238, 237), 2, 0, 0)
kernel("pkey_alloc", (330, 289), 0, 0)
kernel("huge pages in memfd", (319, 279), b"huge", 4)
