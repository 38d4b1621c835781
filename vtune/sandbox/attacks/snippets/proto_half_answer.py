# MUST NOT: leave in the middle of an answer
# CHECK: broker alive; next call answered
# SOFT: 2
# LAYER: protocol

import os
import struct

os.write(10, struct.pack("!I", 5000) + b'{"n": ')
os._exit(0)
