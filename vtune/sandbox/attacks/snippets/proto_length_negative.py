# MUST NOT: announce an answer of negative or zero length
# CHECK: broker alive; next call answered
# SOFT: 2
# LAYER: protocol

import os
import struct

os.write(10, struct.pack("!i", -1))
os.write(10, struct.pack("!i", -(2**31)))
os.write(10, struct.pack("!i", 0) * 100)
