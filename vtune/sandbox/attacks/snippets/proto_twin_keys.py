# MUST NOT: answer with keys twice, boxes without end, numbers that are truth values, texts for lists
# CHECK: another session works; next call answered
# SOFT: 2
# LAYER: protocol

import json
import os
import signal
import struct
import sys

question, frame = None, sys._getframe()
while frame is not None and question is None:
    message = frame.f_locals.get("message")
    question = message.get("n") if isinstance(message, dict) else None
    frame = frame.f_back
crops = [
    {"image": False, "bbox": "0123", "shown": "a.png"},
    {"image": "0", "bbox": [-1e308, -1e308, 1e308, 1.7e308], "shown": "a.png"},
    {"image": 0.5, "bbox": [-1e12, -1e12, 1e12, 1e12], "shown": "a.png"},
]
rest = {"status": "ok", "error": "", "written": ["/etc/passwd", "../in/a.png", "a.png"], "broken": "a", "crops": crops}
body = ('{"n": 0, "status": "infra", "n": ' + json.dumps(question) + ", " + json.dumps(rest)[1:]).encode()
Image.new("RGB", (40, 40)).save("a.png")
os.write(10, struct.pack("!I", len(body)) + body)
os.kill(os.getpid(), signal.SIGSTOP)
