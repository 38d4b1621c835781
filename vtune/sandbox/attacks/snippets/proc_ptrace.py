# MUST NOT: trace another process, or read and write its memory
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


victim, sibling, zygote = int("{{VICTIM}}"), int("{{SIBPID}}"), int("{{ZYG}}")
buffer = ctypes.create_string_buffer(64)
vector = (ctypes.c_uint64 * 2)(ctypes.addressof(buffer), 64)
kernel("ask to be traced", (101, 117), 0, 0, 0, 0)
for pid in (victim, sibling, zygote, os.getppid()):
    kernel("seize", (101, 117), 0x4206, pid, 0, 0)
    kernel("attach", (101, 117), 16, pid, 0, 0)
    kernel("process_vm_readv", (310, 270), pid, vector, 1, vector, 1, 0)
    kernel("process_vm_writev", (311, 271), pid, vector, 1, vector, 1, 0)
    kernel("kcmp", (312, 272), pid, pid, 0, 0, 0)
    kernel("memory limits", (302, 261), pid, 9, 0, buffer)
