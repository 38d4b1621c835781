# MUST NOT: become a program that lies in a descriptor, in memory or in the workspace
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


attempt("stdout", lambda: os.execve(1, ["x"], {}))
program = os.open("program", os.O_RDWR | os.O_CREAT, 0o755)
os.write(program, b"#!/bin/echo DONE\n")
attempt("workspace", lambda: os.execve(os.open("program", os.O_RDONLY), ["x"], {}))
attempt("memfd", lambda: os.execve(os.memfd_create("x"), ["x"], {}))
kernel("empty path", (322, 281), program, b"", (ctypes.c_char_p * 2)(b"x", None), None, 0x1000)
