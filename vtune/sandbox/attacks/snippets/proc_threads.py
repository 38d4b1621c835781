# MUST NOT: run threads, which would go on after the call
# CHECK: refused
# SOFT: 2
# LAYER: seccomp

import _thread
import ctypes
import threading
from concurrent.futures import ThreadPoolExecutor

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long


def attempt(what, action):
    try:
        result = action()
    except Exception as error:
        print("refused", what, type(error).__name__, str(error)[:80])
    else:
        print("DONE", what, repr(result)[:120])


def pool():
    with ThreadPoolExecutor(2) as workers:
        return list(workers.map(abs, [-1]))


attempt("_thread", lambda: _thread.start_new_thread(print, ("in a thread",)))
attempt("Thread", lambda: threading.Thread(target=print, daemon=True).start())
attempt("Timer", lambda: threading.Timer(5, print).start())
attempt("executor", pool)
entry = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda argument: None)
thread = ctypes.c_ulong()
result = LIBC.pthread_create(ctypes.byref(thread), None, entry, None)
print("DONE" if result == 0 else "refused", "pthread_create", result)
