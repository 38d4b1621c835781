# MUST NOT: write to the output file past Python's counter
# CHECK: stdout within the cap; host memory flat
# SOFT: 2
# LAYER: seals

import os

block = b"flood " * 10_000
written = 0
for _ in range(10_000):
    try:
        written += os.write(1, block)
    except OSError as error:
        print("refused", error.strerror)
        break
for descriptor in (0, 2):
    for _ in range(1000):
        os.write(descriptor, block)
