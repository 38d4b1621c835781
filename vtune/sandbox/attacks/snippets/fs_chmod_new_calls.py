# MUST NOT: change metadata by calls that came late to the kernel
# CHECK: canary unchanged; input image unchanged
# SOFT: 2
# LAYER: seccomp

import ctypes
import os

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long

name = b"{{CANARY}}/victim.txt"
value = ctypes.create_string_buffer(b"x" * 32)
times = (ctypes.c_int64 * 4)(1, 0, 1, 0)
LIBC.syscall(ctypes.c_long(452), -100, name, 0o777, 0)  # fchmodat2
argument = (ctypes.c_uint64 * 2)(ctypes.addressof(value), 8)
LIBC.syscall(ctypes.c_long(463), -100, name, 0, b"user.mark", argument, 16)  # setxattrat
LIBC.syscall(ctypes.c_long(469), -100, name, value, 32, 0)  # file_setattr
LIBC.syscall(ctypes.c_long((280, 88)[os.uname().machine == "aarch64"]), -100, name, times, 0)  # utimensat
flags = ctypes.c_long(0x80)  # no access times
descriptor = os.open(image_path, os.O_RDONLY)
print(LIBC.ioctl(descriptor, ctypes.c_ulong(0x40086602), ctypes.byref(flags)), "FS_IOC_SETFLAGS")
