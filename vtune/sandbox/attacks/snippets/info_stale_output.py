# MUST NOT: read what another session printed, from a reused output file
# CHECK: token absent
# SOFT: 2
# LAYER: fork server

import os

size = os.fstat(1).st_size
print("size", size)
left = os.pread(1, size, 0)
print("not empty beyond the start:", len(left.strip(b"\0")), left.strip(b"\0")[-200:])
os.lseek(1, min(size, 4000), os.SEEK_SET)
