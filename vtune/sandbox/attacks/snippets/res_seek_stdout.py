# MUST NOT: forge the length of the output by moving the shared file position
# CHECK: stdout within the cap; host memory flat; broker alive
# SOFT: 2
# LAYER: seals

import os

for place in (1 << 40, (1 << 63) - 1, 1 << 31):
    try:
        print(os.lseek(1, place, os.SEEK_SET))
    except OSError as error:
        print("refused", error.strerror)
os.lseek(1, (1 << 62), os.SEEK_SET)
