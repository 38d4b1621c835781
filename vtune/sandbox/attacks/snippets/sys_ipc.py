# MUST NOT: leave objects that outlive the session: shared memory, semaphores, queues
# CHECK: refused
# SOFT: 2
# LAYER: seccomp

import ctypes
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


for what, numbers, arguments, remove in (
    ("shmget", (29, 194), (0, 4096, 0o1600), (31, 195)),
    ("semget", (64, 190), (0, 1, 0o1600), (66, 191)),
    ("msgget", (68, 186), (0, 0o1600), (71, 187)),
):
    machine = os.uname().machine == "aarch64"
    result = LIBC.syscall(ctypes.c_long(numbers[machine]), *map(ctypes.c_long, arguments))
    print("DONE" if result >= 0 else "refused", what, result)
    if result >= 0:
        zeros = (0, 0, 0) if what == "semget" else (0, 0)
        LIBC.syscall(ctypes.c_long(remove[machine]), ctypes.c_long(result), *map(ctypes.c_long, zeros))
kernel("mq_open", (240, 180), b"vt_{{TOKEN8}}", 0o102, 0o600, 0)
LIBC.syscall(ctypes.c_long((241, 181)[os.uname().machine == "aarch64"]), b"vt_{{TOKEN8}}")
attempt("/dev/shm", lambda: os.close(os.open("/dev/shm/vt_{{TOKEN8}}", os.O_CREAT | os.O_RDWR)))
if os.path.exists("/dev/shm/vt_{{TOKEN8}}"):
    os.unlink("/dev/shm/vt_{{TOKEN8}}")
