# MUST NOT: have the kernel write at its death where others look: a list of futexes, a thread's number
# CHECK: next call answered; fork server lives; another session works
# SOFT: 2
# LAYER: seccomp

import ctypes
import mmap
import os

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long
shared = []
for descriptor in (1, 10):
    try:
        shared.append(mmap.mmap(descriptor, 4096, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE))
    except (OSError, ValueError) as error:
        print("refused", descriptor, error)
for area in shared:
    begin = ctypes.addressof(ctypes.c_char.from_buffer(area))
    (ctypes.c_uint64 * 3).from_address(begin)[:] = [begin + 64, 16, begin + 64]
    ctypes.c_uint64.from_address(begin + 64).value = begin
    ctypes.c_uint32.from_address(begin + 80).value = os.getpid()
    arm = os.uname().machine == "aarch64"
    print("list", LIBC.syscall(ctypes.c_long(99 if arm else 273), ctypes.c_void_p(begin), ctypes.c_long(24)))
    print("number", LIBC.syscall(ctypes.c_long(96 if arm else 218), ctypes.c_void_p(begin + 128)))
os._exit(0)
