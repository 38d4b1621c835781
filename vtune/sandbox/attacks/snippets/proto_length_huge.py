# MUST NOT: announce an answer of four gigabytes
# CHECK: killed; host memory flat; next call answered
# SOFT: 2
# LAYER: protocol

import os
import struct

os.write(10, struct.pack("!I", 0xFFFFFFFF) + b"x" * 1000)
while True:
    pass
