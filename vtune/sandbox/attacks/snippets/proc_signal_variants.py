# MUST NOT: send signals by less known calls
# CHECK: victim, zygote, broker and sibling alive; refused
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


victim = int("{{VICTIM}}")
info = (ctypes.c_int * 32)(9, 0, -1)
kernel("tkill", (200, 130), victim, 9)
kernel("tgkill", (234, 131), victim, victim, 9)
kernel("rt_sigqueueinfo", (129, 138), victim, 9, info)
kernel("rt_tgsigqueueinfo", (297, 240), victim, victim, 9, info)
descriptor = LIBC.syscall(ctypes.c_long(434), ctypes.c_long(victim), ctypes.c_long(0))
kernel("pidfd_open", (434, 434), victim, 0)
kernel("pidfd_send_signal", (424, 424), descriptor, 9, 0, 0)
kernel("pidfd_send_signal to the sibling", (424, 424), descriptor, 0, 0, 0)
kernel("kill with high bits", (62, 129), (1 << 32) | victim, 0)
kernel("tgkill of own group, foreign thread", (234, 131), os.getpid(), victim, 9)
