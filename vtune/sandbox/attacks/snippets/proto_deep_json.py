# MUST NOT: overrun the trainer's JSON reader
# CHECK: broker alive; next call answered
# SOFT: 2
# LAYER: protocol

import gc
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


for nonce in nonces() or [0]:
    for body in (
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'{"n": ' + b"9" * 60_000 + b"}",
        b'{"n": 1e99999, "status": "ok"}',
        b'{"n": 0, "n": "again", "status": "ok", "status": "ok"}',
        b'{"n": "\\ud800", "status": "\\u0000"}',
    ):
        os.write(10, struct.pack("!I", len(body)) + body)
