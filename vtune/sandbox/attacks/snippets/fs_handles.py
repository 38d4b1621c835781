# MUST NOT: reach host files by handles or by descriptors that only name a place
# CHECK: token absent; refused
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


folder = os.open("{{CANARY}}", os.O_PATH) if os.path.isdir("{{CANARY}}") else -100
handle = (ctypes.c_uint8 * 136)()
handle[0] = 128
mount = ctypes.c_int()
kernel("name_to_handle_at", (303, 264), -100, b"{{CANARY}}/secret.txt", handle, ctypes.byref(mount), 0)
kernel("open_by_handle_at", (304, 265), folder, handle, 0)
kernel("openat", (257, 56), folder, b"secret.txt", 0)
kernel("openat2", (437, 437), folder, b"secret.txt", (ctypes.c_uint64 * 3)(0, 0, 0), 24)
kernel("openat2 in root", (437, 437), folder, b"/secret.txt", (ctypes.c_uint64 * 3)(0, 0, 0x10), 24)
kernel("listing", (217, 61), folder, ctypes.create_string_buffer(4096), 4096)
