# MUST NOT: lock files that all sessions read, so that others wait for them
# CHECK: refused
# SOFT: 2
# LAYER: seccomp

import fcntl
import os
import struct
import sys

import matplotlib

FONTS = os.path.join(matplotlib.get_data_path(), "fonts", "ttf", "DejaVuSans.ttf")
LOCK = struct.pack("hhqqi", fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
OFD = {"F_OFD_GETLK": 36, "F_OFD_SETLK": 37, "F_OFD_SETLKW": 38}


def attempt(what, action):
    try:
        result = action()
    except OSError as error:
        print("refused", what, error.strerror)
    else:
        print("DONE", what, repr(result)[:80])


for path in (FONTS, np.__file__, sys.modules["cv2"].__file__, image_path, "/dev/null"):
    try:
        shared = os.open(path, os.O_RDONLY)
    except OSError as error:
        print("refused", path, error.strerror)
        continue
    for how in (fcntl.LOCK_EX, fcntl.LOCK_SH):
        attempt(f"flock {path}", lambda: fcntl.flock(shared, how | fcntl.LOCK_NB))
    attempt(f"lockf {path}", lambda: fcntl.lockf(shared, fcntl.LOCK_SH | fcntl.LOCK_NB))
    for name, command in OFD.items():
        attempt(f"{name} {path}", lambda: fcntl.fcntl(shared, command, LOCK))
    attempt(f"lease {path}", lambda: fcntl.fcntl(shared, 1024, fcntl.F_RDLCK))
    attempt(f"notify {path}", lambda: fcntl.fcntl(shared, 1026, 1))
