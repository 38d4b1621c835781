# MUST NOT: exchange a picture for something else while the folder is read
# CHECK: canary unchanged; another session works; next call answered
# SOFT: 2
# LAYER: freeze

import ctypes
import os

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.syscall.restype = ctypes.c_long
NUMBER = 276 if os.uname().machine == "aarch64" else 316
Image.new("RGB", (30, 30)).save("a.png")
for name, target in (("b.png", "{{CANARY}}/secret.png"), ("c.png", "{{SECRET_FILE}}")):
    for make in (os.symlink, os.link):
        try:
            make(target, name)
        except OSError as error:
            print("refused", make.__name__, error.strerror)
os.mkdir("folder")
for _ in range(20_000):
    LIBC.syscall(ctypes.c_long(NUMBER), -100, b"a.png", -100, b"folder", 2)
