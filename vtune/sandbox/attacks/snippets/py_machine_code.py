# MUST NOT: make the system calls from self-made machine code, not from the C library
# CHECK: canary unchanged; refused
# SOFT: 2
# LAYER: seccomp

import ctypes
import mmap
import os

path = ctypes.create_string_buffer(b"{{CANARY}}/victim.txt")
if os.uname().machine == "x86_64":
    # mov eax, 257 (openat); mov edi, -100; mov rsi, path; mov edx, 1 (for writing); syscall; ret
    code = (
        b"\xb8\x01\x01\x00\x00\xbf\x9c\xff\xff\xff\x48\xbe"
        + ctypes.addressof(path).to_bytes(8, "little")
        + b"\xba\x01\x00\x00\x00\x0f\x05\xc3"
    )
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    result = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
    print("DONE" if result >= 0 else "refused", "openat", result)
else:
    print("refused: no code for this processor")
