# MUST NOT: fill the disk by copies that the kernel makes, faster than anybody looks
# CHECK: host disk flat; next call answered
# SOFT: 6
# WEAK-OK: 0
# LAYER: quota

import os

BYTES = 48 << 20
source = os.open("source", os.O_RDWR | os.O_CREAT)
os.write(source, bytes(BYTES))
for number in range(300):
    copy = os.open(f"copy{number}", os.O_WRONLY | os.O_CREAT)
    left = BYTES
    while left:
        if number % 2:
            left -= os.sendfile(copy, source, BYTES - left, left)
        else:
            left -= os.copy_file_range(source, copy, left, BYTES - left)
    if number % 3 == 0:
        os.unlink(f"copy{number}")
    else:
        os.close(copy)
print("copied")
