# MUST NOT: move or remove the workspace itself
# CHECK: nothing new beside the workspace; refused; next call answered
# SOFT: 2
# LAYER: landlock

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


here = os.getcwd()
attempt("rename", lambda: os.rename(here, here + "_moved"))
attempt("rename to the sibling's", lambda: os.rename(here, "{{SIBWS}}/mine"))
attempt("rename the session", lambda: os.rename(os.path.dirname(here), os.path.dirname(here) + "_moved"))
attempt("remove", lambda: os.rmdir(here))
kernel("exchange", (316, 276), -100, here.encode(), -100, b"{{SIBWS}}", 2)
