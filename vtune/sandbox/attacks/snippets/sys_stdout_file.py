# MUST NOT: change the size, the seals or the kind of the output file
# CHECK: refused; stdout within the cap
# SOFT: 2
# LAYER: seals

import fcntl
import mmap
import os


def attempt(what, action):
    try:
        result = action()
    except Exception as error:
        print("refused", what, type(error).__name__, str(error)[:80])
    else:
        print("DONE", what, repr(result)[:120])


size = os.fstat(1).st_size
attempt("grow", lambda: os.ftruncate(1, 1 << 30))
attempt("shrink", lambda: os.ftruncate(1, 0))
attempt("write behind the end", lambda: os.pwrite(1, b"x", max(size, 1 << 20) + 1))
attempt("more seals", lambda: fcntl.fcntl(1, 1033, 8))
attempt("allocate", lambda: os.posix_fallocate(1, 0, 1 << 30))
attempt(
    "program",
    lambda: mmap.mmap(1, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC).close() or os.execve(1, ["x"], {}),
)
