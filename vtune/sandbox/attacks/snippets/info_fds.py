# MUST NOT: use descriptors that were inherited
# CHECK: token absent; refused
# SOFT: 2
# LAYER: fork server

import os
import stat


def attempt(what, action):
    try:
        result = action()
    except Exception as error:
        print("refused", what, type(error).__name__, str(error)[:80])
    else:
        print("DONE", what, repr(result)[:120])


known = {0, 1, 2, 10}
for descriptor in range(4096):
    if descriptor in known:
        continue
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        continue
    if stat.S_ISDIR(mode) or stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode):
        attempt(f"descriptor {descriptor} of mode {mode:o}", lambda: os.stat(".", dir_fd=descriptor).st_ino)
    try:
        print(descriptor, os.pread(descriptor, 60, 0))
    except OSError as error:
        print("refused", descriptor, error.strerror)
