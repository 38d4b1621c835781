# MUST NOT: write to host files by bare system calls
# CHECK: canary unchanged
# SOFT: 2
# LAYER: landlock

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


path, other = b"{{CANARY}}/victim.txt", b"{{CANARY}}/other.txt"
here = -100
for what, numbers, arguments in (
    ("open", (2, None), (path, 1, 0)),
    ("openat", (257, 56), (here, path, 0o1001, 0)),
    ("truncate", (76, 45), (path, 0)),
    ("creat", (85, None), (path, 0o644)),
    ("unlink", (87, None), (path,)),
    ("unlinkat", (263, 35), (here, path, 0)),
    ("rename", (82, None), (path, other)),
    ("renameat2", (316, 276), (here, path, here, other, 0)),
    ("link", (86, None), (path, b"link.txt")),
    ("linkat", (265, 37), (here, path, here, b"link.txt", 0x400)),
    ("symlinkat", (266, 36), (path, here, b"symbolic.txt")),
    ("mkdirat", (258, 34), (here, b"{{CANARY}}/folder", 0o755)),
    ("mknodat", (259, 33), (here, b"{{CANARY}}/node", 0o100644, 0)),
    ("chmod", (90, None), (path, 0o777)),
    ("fchmodat", (268, 53), (here, path, 0o777)),
    ("chown", (92, None), (path, 12345, 12345)),
    ("setxattr", (188, 5), (path, b"user.mark", b"x", 1, 0)),
):
    kernel(what, numbers, *arguments)
