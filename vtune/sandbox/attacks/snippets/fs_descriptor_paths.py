# MUST NOT: reopen the read-only input for writing through its descriptor
# CHECK: input image unchanged; refused
# SOFT: 2
# LAYER: landlock

import os


def attempt(what, action):
    try:
        result = action()
    except Exception as error:
        print("refused", what, type(error).__name__, str(error)[:80])
    else:
        print("DONE", what, repr(result)[:120])


descriptor = os.open(image_path, os.O_RDONLY)
for folder in ("/proc/self/fd", "/dev/fd", "/proc/thread-self/fd", f"/proc/{os.getpid()}/fd"):
    attempt(folder, lambda folder=folder: os.open(f"{folder}/{descriptor}", os.O_WRONLY))
attempt("write", lambda: os.write(descriptor, b"x"))
attempt("pwrite", lambda: os.pwrite(descriptor, b"x", 0))
attempt("ftruncate", lambda: os.ftruncate(descriptor, 0))
attempt("fallocate", lambda: os.posix_fallocate(descriptor, 0, 1 << 20))
attempt("own memory", lambda: os.open("/proc/self/mem", os.O_RDWR))
attempt("root by proc", lambda: os.open("/proc/self/root/etc/shadow", os.O_RDONLY))
attempt("cwd by proc", lambda: os.open("/proc/self/cwd/../../..", os.O_RDONLY))
