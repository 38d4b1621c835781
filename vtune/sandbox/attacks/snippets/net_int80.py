# MUST NOT: pass the filter by the 32-bit door of the processor
# CHECK: refused
# SOFT: 2
# LAYER: seccomp

import ctypes
import mmap
import os


def machine_code(code):
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    return ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()


if os.uname().machine == "x86_64":
    # eax = 20 (getpid of the 32-bit table); int 0x80; ret. With the filter in force it ends the process.
    result = machine_code(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")
    print("DONE" if result > 0 else "refused", "int 0x80", result)
else:
    print("refused: this processor has no such door")
