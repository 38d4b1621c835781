# MUST NOT: change the machine: modules, names, clock, swap, quotas, log
# CHECK: refused
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


buffer = ctypes.create_string_buffer(b"same", 64)
kernel("finit_module", (313, 273), -1, b"", 0)
kernel("delete_module", (176, 106), b"vt_absent", 0)
kernel("sethostname", (170, 161), os.uname().nodename.encode(), len(os.uname().nodename))
kernel("settimeofday", (164, 170), 0, 0)
kernel("read the kernel log", (103, 116), 3, buffer, 64)
kernel("swapoff", (168, 225), b"/vt_absent")
kernel("quotactl", (179, 60), 0x80000700, b"/dev/vt_absent", 0, buffer)
kernel("acct", (163, 89), b"/vt_absent")
kernel("iopl", (172, None), 3)
kernel("ioperm", (173, None), 0x80, 1, 1)
kernel("modify_ldt", (154, None), 1, buffer, 16)
kernel("kexec_file_load", (320, 294), -1, -1, 0, 0, 0)
kernel("sysfs", (139, None), 3)
