# MUST NOT: regain a capability
# CHECK: refused
# SOFT: 2
# LAYER: seccomp

import ctypes
import os
import struct

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


header = ctypes.create_string_buffer(struct.pack("=Ii", 0x20080522, 0), 8)
every = ctypes.create_string_buffer(b"\xff" * 24, 24)
kernel("capset all", (126, 91), header, every)
kernel("ambient", (157, 167), 47, 2, 21, 0, 0)
kernel("keep capabilities", (157, 167), 8, 1, 0, 0, 0)
kernel("secure bits", (157, 167), 28, 0x2F, 0, 0, 0)
now = ctypes.create_string_buffer(24)
LIBC.syscall(ctypes.c_long((125, 90)[os.uname().machine == "aarch64"]), header, now)
effective = struct.unpack("=6I", now.raw)
print("DONE capabilities" if effective[0] or effective[3] else "refused: no capability", effective)
