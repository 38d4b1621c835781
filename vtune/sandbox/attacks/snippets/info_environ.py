# MUST NOT: find secrets in environments
# CHECK: token absent
# SOFT: 2
# LAYER: fork server

import ctypes
import os

print(dict(os.environ))
environment = ctypes.POINTER(ctypes.c_char_p).in_dll(ctypes.CDLL(None), "environ")
number = 0
while environment and environment[number]:
    print(environment[number])
    number += 1
for process in ("self", "1", "{{ZYG}}", "{{BROKER}}", "{{SIBPID}}", "{{VICTIM}}"):
    for name in ("environ", "cmdline", "auxv"):
        try:
            print(process, name, open(f"/proc/{process}/{name}", "rb").read()[:4000])
        except OSError as error:
            print("refused", process, name, error.strerror)
