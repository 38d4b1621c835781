# MUST NOT: watch what happens in host folders
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


watch = LIBC.syscall(ctypes.c_long((294, 26)[os.uname().machine == "aarch64"]), 0)
print("refused inotify" if watch < 0 else "inotify descriptor")
kernel("inotify on the host", (254, 27), watch, b"{{CANARY}}", 0xFFF)
kernel("inotify on the sandbox", (254, 27), watch, b"{{ROOT}}", 0xFFF)
kernel("fanotify_init", (300, 262), 0x200, 0)
folder = os.open(".", os.O_RDONLY)
kernel("dnotify", (72, 25), folder, 1026, 0x8000003F)
