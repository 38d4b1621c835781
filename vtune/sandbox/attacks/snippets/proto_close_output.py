# MUST NOT: close only the output, and open another file in its place
# CHECK: token absent; broker alive; next call answered
# SOFT: 2
# LAYER: protocol

import os

kept = os.dup(1)
os.close(1)
os.open("mine.txt", os.O_RDWR | os.O_CREAT)
os.lseek(1, 1 << 40, os.SEEK_SET)
os.close(0)
os.close(2)
print("to a file of my own")
os.dup2(kept, 1)
