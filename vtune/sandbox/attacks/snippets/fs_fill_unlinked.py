# MUST NOT: fill the disk with files that have no name any more, so that no listing shows them
# CHECK: refused; host disk flat
# SOFT: 8
# LAYER: quota
# WEAK-OK: 0

import os

block = bytes(16 << 20)
held, written = [], 0
try:
    while written < 3 << 30:
        descriptor = os.open("ghost", os.O_RDWR | os.O_CREAT, 0o600)
        os.unlink("ghost")
        held.append(descriptor)
        try:
            for _ in range(4):
                written += os.write(descriptor, block)
        except OSError:
            pass
except OSError as error:
    print("refused", error.strerror, "after", written >> 20, "MiB")
if written > 1 << 30:
    print("DONE", written >> 20, "MiB in nameless files")
