# MUST NOT: answer in the runner's place with an invented nonce
# CHECK: killed; next call answered
# SOFT: 2
# LAYER: protocol

import json
import os
import struct


def answer(nonce, **changes):
    lists = {"notes": [], "names": [], "crops": [], "written": [], "blobs": []}
    return {"n": nonce, "status": "ok", "error": "", **lists, **changes}


def send(message):
    body = json.dumps(message).encode()
    os.write(10, struct.pack("!I", len(body)) + body)


print("before")
for nonce in (0, 1, -1, "", "0" * 32, None, True, [], 1e308):
    send(answer(nonce, output="forged"))
