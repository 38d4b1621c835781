# MUST NOT: take another user or group
# CHECK: refused
# SOFT: 2
# LAYER: seccomp

import ctypes
import os

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long

before = (os.getresuid(), os.getresgid(), os.getgroups())
for what, change in {
    "setuid": lambda: os.setuid(0),
    "seteuid": lambda: os.seteuid(12345),
    "setresuid": lambda: os.setresuid(12345, 12345, 12345),
    "setreuid": lambda: os.setreuid(0, 0),
    "setgid": lambda: os.setgid(12345),
    "setgroups": lambda: os.setgroups([0, 12345]),
    "initgroups": lambda: os.initgroups("root", 12345),
}.items():
    try:
        change()
        print("returned", what)
    except OSError as error:
        print("refused", what, error.strerror)
LIBC.syscall(ctypes.c_long((122, 151)[os.uname().machine == "aarch64"]), ctypes.c_long(12345))  # setfsuid
after = (os.getresuid(), os.getresgid(), os.getgroups())
print("DONE another user" if after != before else "refused: the same user")
