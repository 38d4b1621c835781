# MUST NOT: confuse the signal that ends a call by stacks and masks set behind Python's back
# CHECK: killed or timeout within soft+grace
# SOFT: 2
# LAYER: seccomp

import ctypes
import signal

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long

stack = ctypes.create_string_buffer(1 << 16)
LIBC.sigaltstack((ctypes.c_uint64 * 3)(ctypes.addressof(stack), 0, 4096), None)
action = (ctypes.c_uint64 * 19)(1)  # SIG_IGN, for the signal as the C library sees it
for number in range(1, 65):
    LIBC.sigaction(number, action, None)
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
print("every signal ignored and blocked")
while True:
    pass
