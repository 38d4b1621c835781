# MUST NOT: type into the trainer's terminal
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


letter = ctypes.create_string_buffer(b"\n")
for descriptor in (0, 1, 2, 10):
    kernel("TIOCSTI", (16, 29), descriptor, 0x5412, letter)
    kernel("TIOCSCTTY", (16, 29), descriptor, 0x540E, 1)
    kernel("TIOCLINUX", (16, 29), descriptor, 0x541C, letter)
    kernel("high bits", (16, 29), descriptor, (1 << 32) | 0x5412, letter)
attempt("terminal", lambda: os.open("/dev/tty", os.O_RDWR))
attempt("new terminal", lambda: os.openpty())
