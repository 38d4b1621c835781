# MUST NOT: raise the limits of the session or lower those of others
# CHECK: victim, zygote, broker and sibling alive; refused
# SOFT: 2
# LAYER: seccomp

import ctypes
import os
import resource

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


for name in ("AS", "CPU", "FSIZE", "NOFILE", "NPROC", "CORE", "MEMLOCK", "STACK", "DATA", "SIGPENDING"):
    number = getattr(resource, f"RLIMIT_{name}", None)
    if number is None:
        continue
    before = resource.getrlimit(number)
    for wanted in ((-1, -1), (before[0] * 2, before[1] * 2)):
        try:
            resource.setrlimit(number, wanted)
        except (OSError, ValueError, OverflowError) as error:
            print("refused", name, error)
    now = resource.getrlimit(number)
    grown = now[1] != before[1] and (now[1] == -1 or (before[1] != -1 and now[1] > before[1]))
    print("DONE" if grown else "refused", name, before, now)
victim = int("{{VICTIM}}")
attempt("victim", lambda: resource.prlimit(victim, resource.RLIMIT_NOFILE, (0, 0)))
kernel("old setrlimit", (160, 164), 7, (ctypes.c_uint64 * 2)(2**64 - 1, 2**64 - 1))
