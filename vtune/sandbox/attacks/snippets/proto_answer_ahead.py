# MUST NOT: queue answers for calls that have not been asked
# CHECK: next call answered
# SOFT: 2
# LAYER: protocol

import gc
import json
import os
import struct
import sys


def nonces():
    """The nonces that this call's answer must contain, wherever the runner keeps them."""
    found = []
    frame = sys._getframe()
    while frame is not None:
        for name, value in list(frame.f_locals.items()):
            if isinstance(value, dict) and "n" in value:
                found.append(value["n"])
            elif name in ("n", "nonce"):
                found.append(value)
        frame = frame.f_back
    for thing in gc.get_objects():
        if type(thing) is dict and "n" in thing and "code" in thing:
            found.append(thing["n"])
    kept = []
    for value in found:
        if isinstance(value, (int, str)) and value not in kept:
            kept.append(value)
    return kept[:4]


def answer(nonce, **changes):
    lists = {"notes": [], "names": [], "crops": [], "written": [], "blobs": []}
    return {"n": nonce, "status": "ok", "error": "", **lists, **changes}


def send(message):
    body = json.dumps(message).encode()
    os.write(10, struct.pack("!I", len(body)) + body)


for nonce in nonces():
    for step in range(4):
        send(answer(nonce + step if isinstance(nonce, int) else nonce, output=f"answer {step}"))
print("queued")
