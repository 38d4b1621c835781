# MUST NOT: reserve memory without touching it, or by mapping files
# CHECK: refused
# SOFT: 2
# LAYER: rlimits

import ctypes
import mmap
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


attempt(
    "reserve", lambda: mmap.mmap(-1, 1 << 40, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000, prot=0)
)
attempt("shared", lambda: mmap.mmap(-1, 100 << 30))
attempt("array", lambda: np.empty(1 << 40, np.uint8).nbytes)
attempt("picture", lambda: Image.new("RGB", (200_000, 200_000)).size)
attempt("matrix", lambda: cv2.resize(np.zeros((2, 2), np.uint8), (200_000, 200_000)).shape)
kernel("huge page", (9, 222), 0, 16 << 30, 3, 0x40022, -1, 0)
