# MUST NOT: change the input through a shared mapping or a copy inside the kernel
# CHECK: input image unchanged; refused
# SOFT: 2
# LAYER: landlock

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


source = os.open("source.bin", os.O_RDWR | os.O_CREAT, 0o600)
os.write(source, b"overwritten" * 100)
target = os.open(image_path, os.O_RDONLY)
here, there = os.pipe()


def through_a_map():
    os_map = mmap.mmap(target, 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    os_map[0:4] = b"evil"


def through_a_private_map():
    private = mmap.mmap(target, 0, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)
    kernel_address = ctypes.c_char_p(ctypes.addressof(ctypes.py_object(private)))
    LIBC.mprotect(kernel_address, 4096, 3)
    private[0:4] = b"evil"


attempt("map", through_a_map)
attempt("map and unprotect", through_a_private_map)
attempt("sendfile", lambda: os.sendfile(target, source, 0, 100))
attempt("copy_file_range", lambda: os.copy_file_range(source, target, 100, 0, 0))
attempt("splice", lambda: (os.write(there, b"evil"), os.splice(here, target, 4))[1])
kernel("FICLONE", (16, 29), target, 0x40049409, source)
kernel("vmsplice", (278, 75), target, 0, 0, 0)
