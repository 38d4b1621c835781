# MUST NOT: make or enter namespaces
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


for name, flag in {
    "user": 0x10000000,
    "mount": 0x00020000,
    "net": 0x40000000,
    "pid": 0x20000000,
    "ipc": 0x08000000,
    "uts": 0x04000000,
    "cgroup": 0x02000000,
    "files": 0x00000400,
    "user and net": 0x50000000,
}.items():
    kernel(f"unshare {name}", (272, 97), flag)
for name in ("mnt", "net", "user", "pid"):
    attempt(name, lambda name=name: os.open(f"/proc/{{ZYG}}/ns/{name}", os.O_RDONLY))
kernel("setns", (308, 268), 0, 0)
