# MUST NOT: become another program
# CHECK: refused
# SOFT: 2
# LAYER: seccomp

import ctypes
import os
import sys

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


for program in (sys.executable, "/bin/sh", "/bin/true", "/proc/self/exe"):
    attempt(program, lambda program=program: os.execv(program, [program, "-c", "print('DONE exec')"]))
loader = "/lib64/ld-linux-x86-64.so.2"
attempt("the loader", lambda: os.execv(loader, [loader, "/bin/echo", "DONE loader"]))
open("script", "w").write("#!/bin/sh\necho DONE script\n")
os.chmod("script", 0o755)
attempt("own script", lambda: os.execv("./script", ["script"]))
kernel("execveat", (322, 281), -100, b"/bin/true", (ctypes.c_char_p * 2)(b"true", None), None, 0)
