# MUST NOT: make a second process by any call that makes one
# CHECK: refused; no process left
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


def child(start):
    number = start()
    if number == 0:
        os._exit(0)
    return number


attempt("fork", lambda: child(os.fork))
attempt("forkpty", lambda: child(lambda: os.forkpty()[0]))
for what, numbers, arguments in (
    ("fork", (57, None), ()),
    ("clone", (56, 220), (17, 0, 0, 0, 0)),
    ("clone as sibling of the session", (56, 220), (0x8000 | 17, 0, 0, 0, 0)),
):
    number = numbers[os.uname().machine == "aarch64"]
    if number is not None:
        result = LIBC.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments))
        if result == 0:
            os._exit(0)
        print("DONE" if result > 0 else "refused", what, result)
arguments = (ctypes.c_uint64 * 8)(0, 0, 0, 0, 17, 0, 0, 0)
result = LIBC.syscall(ctypes.c_long(435), arguments, ctypes.c_long(64))
if result == 0:
    os._exit(0)
print("DONE" if result > 0 else "refused", "clone3", result)
