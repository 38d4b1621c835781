# MUST NOT: learn of host files that they exist and how large they are
# CHECK: INFO: size of secret.txt absent
# SOFT: 2
# LAYER: namespaces

import ctypes
import os

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long

path = "{{CANARY}}/secret.txt"
for what, look in {
    "stat": lambda: os.stat(path).st_size,
    "lstat": lambda: os.lstat(path).st_size,
    "by the folder": lambda: os.stat("secret.txt", dir_fd=os.open("{{CANARY}}", os.O_PATH)).st_size,
    "seek": lambda: os.lseek(os.open(path, os.O_PATH), 0, os.SEEK_END),
    "fstat": lambda: os.fstat(os.open(path, os.O_PATH)).st_size,
}.items():
    try:
        print(what, "size", look())
    except OSError as error:
        print("refused", what, error.strerror)
answer = ctypes.create_string_buffer(256)
number = (332, 291)[os.uname().machine == "aarch64"]
if LIBC.syscall(ctypes.c_long(number), -100, path.encode(), 0, 0x7FF, answer) == 0:
    print("statx size", int.from_bytes(answer.raw[40:48], "little"))
