# MUST NOT: cut host files or the input short
# CHECK: canary unchanged; input image unchanged; refused
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


for path in ("{{CANARY}}/victim.txt", image_path, os.path.realpath(image_path)):
    attempt("truncate", lambda path=path: os.truncate(path, 0))
    attempt("O_TRUNC alone", lambda path=path: os.open(path, os.O_RDONLY | os.O_TRUNC))
    attempt("O_CREAT|O_TRUNC", lambda path=path: os.open(path, os.O_CREAT | os.O_TRUNC | os.O_RDONLY))
kernel("creat", (85, None), b"{{CANARY}}/victim.txt", 0o644)
kernel("openat2", (437, 437), -100, b"{{CANARY}}/victim.txt", (ctypes.c_uint64 * 3)(0o1000, 0, 0), 24)
