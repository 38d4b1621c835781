# MUST NOT: follow the runner with trace and profile functions after the call
# CHECK: no CPU used between calls; next call answered
# SOFT: 2
# LAYER: protocol

import sys
import threading


def spy(frame, event, argument):
    if "n" in frame.f_locals or "nonce" in frame.f_locals:
        frame.f_locals.clear()
        raise RuntimeError("traced")
    return spy


sys.setprofile(spy)
sys.settrace(spy)
threading.settrace(spy)
sys._getframe().f_trace = spy
frame = sys._getframe()
while frame is not None:
    frame.f_trace = spy
    frame = frame.f_back
