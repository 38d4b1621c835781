# MUST NOT: make a file of a terabyte that holds nothing
# CHECK: refused; broker alive
# SOFT: 2
# LAYER: rlimits

import os


def attempt(what, action):
    try:
        result = action()
    except Exception as error:
        print("refused", what, type(error).__name__, str(error)[:80])
    else:
        print("DONE", what, repr(result)[:120])


descriptor = os.open("sparse.png", os.O_RDWR | os.O_CREAT, 0o600)
attempt("ftruncate", lambda: os.ftruncate(descriptor, 1 << 40))
attempt("write far", lambda: os.pwrite(descriptor, b"x", 1 << 40))
attempt("fallocate", lambda: os.posix_fallocate(descriptor, 0, 100 << 30))
attempt("truncate", lambda: os.truncate("sparse.png", 1 << 40))
