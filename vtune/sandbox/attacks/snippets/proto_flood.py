# MUST NOT: drown the trainer in answers
# CHECK: host memory flat; next call answered
# SOFT: 2
# LAYER: protocol

import os
import struct

body = b'{"n": 0, "status": "' + b"x" * 60_000 + b'"}'
while True:
    os.write(10, struct.pack("!I", len(body)) + body)
