# MUST NOT: answer with what is no JSON
# CHECK: killed; broker alive; next call answered
# SOFT: 2
# LAYER: protocol

import os
import pickle
import struct

body = pickle.dumps({"n": 0, "status": "ok"})
os.write(10, struct.pack("!I", len(body)) + body)
for body in (b"", b"\xff\xfe\x00", b"NaN", b'{"n":', b"\0" * 100):
    os.write(10, struct.pack("!I", len(body)) + body)
