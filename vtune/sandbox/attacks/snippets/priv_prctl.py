# MUST NOT: undo the confinement by prctl
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


for name, arguments in {
    "dumpable": (4, 1, 0, 0, 0),
    "outlive the parent": (1, 0, 0, 0, 0),
    "allow new privileges": (38, 0, 0, 0, 0),
    "subreaper": (36, 1, 0, 0, 0),
    "anybody may trace": (0x59616D61, -1, 0, 0, 0),
    "own filter": (22, 1, 0, 0, 0),
    "move the program break": (35, 7, 0x10000, 0, 0),
    "replace the program": (35, 13, 0, 0, 0),
    "syscall dispatch": (59, 1, 0, 0, 0),
    "speculation": (53, 0, 1, 0, 0),
    "machine check": (33, 1, 1, 0, 0),
    "drop a bound": (24, 1, 0, 0, 0),
    "io flusher": (57, 1, 0, 0, 0),
}.items():
    kernel(name, (157, 167), *arguments)
