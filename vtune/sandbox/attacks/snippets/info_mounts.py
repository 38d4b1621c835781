# MUST NOT: learn which disks and folders the host has mounted
# CHECK: refused
# SOFT: 2
# LAYER: namespaces

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


for path in (
    "/proc/self/mountinfo",
    "/proc/mounts",
    "/etc/mtab",
    "/proc/partitions",
    "/proc/net/tcp",
    "/proc/net/unix",
    "/proc/keys",
    "/proc/locks",
    "/proc/sysvipc/shm",
    "/proc/kallsyms",
):
    attempt(path, lambda: open(path).read(40))
question = (ctypes.c_uint64 * 4)(24, 2**64 - 1, 0, 0)
answer = ctypes.create_string_buffer(4096)
kernel("listmount", (458, 458), question, answer, 64, 0)
question[2] = 0x3F
kernel("statmount", (457, 457), question, answer, 4096, 0)
