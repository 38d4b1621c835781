# MUST NOT: take descriptors or memory of another process through a pidfd
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


for pid in (int("{{VICTIM}}"), int("{{SIBPID}}"), int("{{ZYG}}"), os.getppid()):
    kernel("pidfd_open", (434, 434), pid, 0)
    descriptor = LIBC.syscall(ctypes.c_long(434), ctypes.c_long(pid), ctypes.c_long(0))
    kernel("pidfd_getfd", (438, 438), descriptor, 0, 0)
    kernel("setns", (308, 268), descriptor, 0x20000000)
    kernel("process_mrelease", (448, 448), descriptor, 0)
    kernel("process_madvise", (440, 440), descriptor, (ctypes.c_uint64 * 2)(0, 0), 1, 21, 0)
    kernel("migrate_pages", (256, 238), pid, 0, 0, 0)
    kernel("move_pages", (279, 239), pid, 0, 0, 0, 0, 0)
    kernel("robust list", (274, 100), pid, ctypes.create_string_buffer(8), ctypes.create_string_buffer(8))
